//! The policies that are searched.

use shared::policy::{
    Admission, Assignment, Barrier, Enforce, Input, Placement, Policy, Queue, Release, Take,
    Transport, preset,
};

/// Every combination of the choices that decide who waits for whom.
pub(super) fn policies(targets: u16, drafters: u16) -> Vec<Policy> {
    let mut all = Vec::new();
    let queues = [
        Queue::Fifo,
        Queue::PerDrafter,
        Queue::Bucketed,
        Queue::Composed,
        Queue::Dealt,
    ];
    // Where things wait, how they get there, whether copies run beside compute, and how many are fetched ahead.
    let ways = [
        (Placement::Host, Transport::HostPageable, false, 0),
        (Placement::Target, Transport::P2p, true, 1),
        (Placement::Target, Transport::Local, true, 0),
        (Placement::Drafter, Transport::P2p, true, 1),
    ];
    for queue in queues {
        for admission in [Admission::Block, Admission::Reserve] {
            for assignment in [Assignment::Fixed, Assignment::Shared] {
                for input in [Input::FixedRoundRobin, Input::Shared] {
                    for release in [Release::Taken, Release::Trained] {
                        for (placement, transport, overlap, prefetch) in ways {
                            for barrier in [Barrier::All, Barrier::None] {
                                all.push(Policy {
                                    name: String::new(),
                                    targets,
                                    drafters,
                                    input,
                                    queue,
                                    take: Take::Oldest,
                                    admission,
                                    release,
                                    placement,
                                    transport,
                                    overlap,
                                    prefetch,
                                    assignment,
                                    barrier,
                                    depth_per_drafter: None,
                                    retry_max: 1,
                                    mix_enforce: Enforce::Record,
                                    ..preset("staged-fifo").expect("it exists")
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    all
}
