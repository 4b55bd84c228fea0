//! Which track shows a copy: one a link, as the simulator has links, and a lane beside it for copies that share it at a time.

use super::LINKS;
use super::writer::{Track, Writer};
use crate::scenario::PolicyFile;
use shared::id::{DrafterId, TargetId};
use shared::policy::Transport;
use std::collections::BTreeMap;

/// Lanes that a link may have; copies out of one target or into one drafter are far fewer.
const LANES: u32 = 1 << 12;

/// Place of the first link into a drafter, behind those of all targets.
const INWARD: u32 = 1 << 17;

/// Gives each copy a track on which no other is under way.
pub(super) struct Lanes {
    transport: &'static str,
    is_shared: bool,
    is_duplex: bool,
    /// Busy lanes by the place of their link.
    links: BTreeMap<u32, Vec<bool>>,
}

impl Lanes {
    pub(super) fn new(file: &PolicyFile) -> Self {
        let hardware = &file.hardware;
        let (transport, link) = match file.policy.transport {
            Transport::HostPageable => ("host-pageable", hardware.host_pageable.as_ref()),
            Transport::HostPinned => ("host-pinned", hardware.host_pinned.as_ref()),
            Transport::P2p => ("p2p", hardware.p2p.as_ref()),
            Transport::Local => ("local", None),
        };
        Self {
            transport,
            is_shared: link.is_some_and(|link| link.shared),
            is_duplex: link.is_none_or(|link| link.duplex),
            links: BTreeMap::new(),
        }
    }

    /// A free lane for a copy out of a target.
    pub(super) fn out_of(&mut self, target: TargetId, writer: &mut Writer) -> Track {
        match (self.is_shared, self.is_duplex) {
            (false, _) => {
                let place = 1 + target.index() as u32;
                self.lane(place, &format!(" out of {target}"), writer)
            }
            (true, true) => self.lane(1, " out of the GPUs", writer),
            (true, false) => self.lane(1, "", writer),
        }
    }

    /// A free lane for a copy into a drafter.
    pub(super) fn toward(&mut self, drafter: DrafterId, writer: &mut Writer) -> Track {
        match (self.is_shared, self.is_duplex) {
            (false, _) => {
                let place = INWARD + drafter.index() as u32;
                self.lane(place, &format!(" into {drafter}"), writer)
            }
            (true, true) => self.lane(INWARD, " into the GPUs", writer),
            (true, false) => self.lane(1, "", writer),
        }
    }

    /// The copy on this lane is over.
    pub(super) fn free(&mut self, track: Track) {
        let (place, lane) = (track.thread / LANES, (track.thread % LANES) as usize);
        let lanes = self.links.get_mut(&place);
        if let Some(is_busy) = lanes.and_then(|lanes| lanes.get_mut(lane)) {
            *is_busy = false;
        }
    }

    /// A free lane of the link at `place`, which is named by its transport and `end`.
    fn lane(&mut self, place: u32, end: &str, writer: &mut Writer) -> Track {
        let lanes = self.links.entry(place).or_default();
        let free = lanes.iter().position(|is_busy| !is_busy);
        let lane = free.unwrap_or(lanes.len());
        let track = Track {
            process: LINKS,
            thread: place * LANES + lane as u32,
        };
        if let Some(is_busy) = lanes.get_mut(lane) {
            *is_busy = true;
            return track;
        }
        lanes.push(true);
        let number = if lane == 0 {
            String::new()
        } else {
            format!(" ({})", lane + 1)
        };
        let name = format!("{}{end}{number}", self.transport);
        writer.name_track(track, &name, track.thread);
        track
    }
}
