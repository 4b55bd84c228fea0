//! Which track shows a copy: one a link, as the simulator has links, and a lane beside it for copies that share it at a time.

use super::LINKS;
use super::writer::{Track, Writer};
use crate::scenario::PolicyFile;
use shared::id::{DrafterId, TargetId};
use shared::policy::Transport;
use std::collections::BTreeMap;

/// Lanes of one link that can be told apart in order; more follow them.
const LANES: u32 = 256;

/// Gives each copy a track on which no other is under way.
pub(super) struct Lanes {
    transport: &'static str,
    is_shared: bool,
    is_duplex: bool,
    /// Busy lanes by link.
    links: BTreeMap<String, Vec<bool>>,
    /// Place of a link's first lane, by order of appearance.
    places: BTreeMap<String, u32>,
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
            places: BTreeMap::new(),
        }
    }

    /// A free lane for a copy out of a target.
    pub(super) fn out_of(&mut self, target: TargetId, writer: &mut Writer) -> Track {
        let own = format!("out of {target}");
        self.lane(&own, "out of the GPUs", writer)
    }

    /// A free lane for a copy into a drafter.
    pub(super) fn toward(&mut self, drafter: DrafterId, writer: &mut Writer) -> Track {
        let own = format!("into {drafter}");
        self.lane(&own, "into the GPUs", writer)
    }

    /// The copy on this lane is over.
    pub(super) fn free(&mut self, track: Track) {
        let (place, lane) = (track.thread / LANES, (track.thread % LANES) as usize);
        let link = self.places.iter().find(|&(_, &at)| at == place);
        if let Some(lanes) = link.and_then(|(link, _)| self.links.get_mut(link))
            && let Some(is_busy) = lanes.get_mut(lane)
        {
            *is_busy = false;
        }
    }

    fn lane(&mut self, own: &str, all: &str, writer: &mut Writer) -> Track {
        let transport = self.transport;
        let link = match (self.is_shared, self.is_duplex) {
            (false, _) => format!("{transport} {own}"),
            (true, true) => format!("{transport} {all}"),
            (true, false) => transport.to_owned(),
        };
        let next = self.places.len() as u32 + 1;
        let place = *self.places.entry(link.clone()).or_insert(next);
        let lanes = self.links.entry(link.clone()).or_default();
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
        let name = if lane == 0 {
            link
        } else {
            format!("{link} ({})", lane + 1)
        };
        writer.name_track(track, &name, track.thread);
        track
    }
}
