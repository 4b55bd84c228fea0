use super::*;
use shared::policy::preset;

fn policy(name: &str) -> Policy {
    preset(name).unwrap()
}

#[test]
fn slots_are_set_aside_where_the_policy_lets_hidden_states_stand() {
    let work = Work {
        microbatches: 100,
        buckets: 6,
        smallest: Bytes(10),
    };
    let mut policy = policy("composed");
    (policy.targets, policy.drafters, policy.depth_total) = (2, 1, Some(4));
    (policy.placement, policy.transport) = (Placement::Target, Transport::Local);
    let counts = |policy: &Policy, gpus| {
        let counts = SlotCounts::new(policy, &work, &Placing::spread(policy, gpus)).unwrap();
        (counts.gpus, counts.host)
    };
    // Under reserve everything that is alive has a slot.
    assert_eq!(counts(&policy, 1), (vec![4], 0));
    policy.admission = Admission::Block;
    assert_eq!(counts(&policy, 1), (vec![4 + 2 * 3], 0));
    policy.admission = Admission::Reserve;
    policy.release = Release::Taken;
    assert_eq!(counts(&policy, 1), (vec![4 + 1], 0));
    (policy.placement, policy.transport) = (Placement::Host, Transport::HostPinned);
    policy.release = Release::Trained;
    assert_eq!(counts(&policy, 1), (vec![2 * 2 + 1], 4));
    assert_eq!(counts(&policy, 2), (vec![4, 1], 4));
    policy.depth_total = None;
    policy.bytes_total = Some(Bytes(35));
    assert_eq!(counts(&policy, 1).1, 3);
    policy.bytes_total = None;
    let refused = SlotCounts::new(&policy, &work, &Placing::spread(&policy, 1)).unwrap_err();
    assert!(refused.ends_with("set policy.depth_total"), "{refused}");
}

#[test]
fn a_device_is_described_by_what_it_is_needed_for() {
    let memory = DeviceMemory {
        gpu: 0,
        name: "NVIDIA H200".to_owned(),
        free: Bytes(140 << 30),
        parts: vec![
            ("weights".to_owned(), Bytes(16 << 30)),
            ("nothing".to_owned(), Bytes(0)),
            ("slots".to_owned(), Bytes(8 << 30)),
        ],
    };
    assert_eq!(memory.needed(), Bytes(24 << 30));
    let text = memory.to_string();
    assert!(text.starts_with("GPU 0 (NVIDIA H200): "), "{text}");
    assert!(
        text.contains("weights ") && !text.contains("nothing"),
        "{text}"
    );
}

#[test]
fn a_drafter_works_on_what_a_pass_may_hold() {
    let largest = Largest {
        tokens: 49_152,
        width: 2048,
        rows: 24,
    };
    let limits = largest.limits(512, 16);
    assert_eq!(
        (limits.slots_max, limits.context_max, limits.row_max),
        (65_536, 49_152, 2048)
    );
    let small = Largest {
        tokens: 512,
        width: 128,
        rows: 4,
    };
    assert_eq!(small.limits(8, 4).slots_max, 128);
    assert_eq!(small.limits(9000, 16).slots_max, 144_000);
}
