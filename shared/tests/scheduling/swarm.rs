//! Random runs: a seed draws work, policy, service times and faults. Invariants hold after every event, and all work ends.

use crate::common::{Driver, End, Fault, Times, Work, Worker};
use shared::core::{Event, Outcome, Status};
use shared::draw::{Seed, Stream};
use shared::id::Bytes;
use shared::metrics::{Detail, Meter};
use shared::plan::{Fill, Tail};
use shared::policy::{
    Admission, Assignment, Barrier, Enforce, Input, Placement, Policy, Queue, Release, Severity,
    Take, Transport, preset,
};
use shared::record::{Record, replay};
use shared::time::Span;

/// Random choices, each by its number.
struct Dice {
    seed: Seed,
    thrown: u64,
}

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.thrown += 1;
        self.seed.below(Stream::Shuffle, self.thrown, below)
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn maybe(&mut self, low: u64, below: u64) -> Option<u32> {
        self.one_in(2).then(|| (low + self.below(below)) as u32)
    }
}

struct Case {
    work: Work,
    policy: Policy,
    times: Times,
    faults: Vec<(u64, Fault)>,
}

impl Case {
    /// With so many microbatches an epoch, at most.
    fn draw(seed: u64, most: u64) -> Self {
        let mut dice = Dice {
            seed: Seed(seed),
            thrown: 0,
        };
        let work = draw_work(&mut dice, seed, most);
        let policy = draw_policy(&mut dice, &work);
        let span = |dice: &mut Dice| dice.pick(&[0, 1, 10, 100]);
        let times = Times {
            forward: span(&mut dice),
            stage: span(&mut dice),
            fetch: span(&mut dice),
            train: span(&mut dice),
            apply: span(&mut dice),
            spread: span(&mut dice),
            late: dice.pick(&[0, 0, 3]),
            fail_permille: dice.pick(&[0, 0, 0, 20, 200]),
            seed: Seed(seed),
        };
        let faults = draw_faults(&mut dice, &policy, 1_000 * most / FEW);
        Self {
            work,
            policy,
            times,
            faults,
        }
    }

    fn driver(&self) -> Driver {
        let driver = Driver::new(self.work.core(&self.policy), self.times);
        self.faults
            .iter()
            .fold(driver, |driver, &(at, fault)| driver.at(at, fault))
    }

    /// Whether the check promises that this case ends.
    fn must_end(&self) -> bool {
        let findings = self.work.findings(&self.policy);
        !findings.iter().any(|f| f.message.contains("deadlock"))
    }
}

fn draw_work(dice: &mut Dice, seed: u64, most: u64) -> Work {
    let epochs = 1 + dice.below(2);
    let buckets = 1 + dice.below(5);
    let epochs = (0..epochs).map(|_| {
        let count = 1 + dice.below(most);
        (0..count).map(|_| dice.below(buckets) as u8).collect()
    });
    let epochs = epochs.collect();
    Work {
        epochs,
        samples: 1 + dice.below(3) as u32,
        grad_accum: 1 + dice.below(3) as u32,
        seed,
        shuffled: dice.one_in(2),
    }
}

fn draw_policy(dice: &mut Dice, work: &Work) -> Policy {
    loop {
        let window = u64::from(work.grad_accum);
        let bytes = |slots: Option<u32>| slots.map(|s| Bytes(u64::from(s) * 5));
        let mut policy = Policy {
            name: "drawn".into(),
            targets: 1 + dice.below(4) as u16,
            drafters: 1 + dice.below(3) as u16,
            input: dice.pick(&[Input::FixedRoundRobin, Input::Shared]),
            queue: dice.pick(&[
                Queue::Fifo,
                Queue::PerDrafter,
                Queue::Bucketed,
                Queue::Composed,
                Queue::Dealt,
            ]),
            take: dice.pick(&[Take::RoundRobin, Take::Oldest, Take::Longest, Take::Random]),
            admission: dice.pick(&[Admission::Block, Admission::Reserve]),
            release: dice.pick(&[Release::Taken, Release::Fetched, Release::Trained]),
            depth_total: dice.maybe(1, 12),
            depth_per_bucket: dice.maybe(1, 4).filter(|_| window > 1),
            depth_per_drafter: dice.maybe(1, 5),
            placement: dice.pick(&[Placement::Target, Placement::Host, Placement::Drafter]),
            transport: dice.pick(&[
                Transport::HostPageable,
                Transport::HostPinned,
                Transport::P2p,
                Transport::Local,
            ]),
            overlap: dice.one_in(2),
            prefetch: dice.pick(&[0, 0, 1, 2]),
            assignment: dice.pick(&[Assignment::Fixed, Assignment::Shared]),
            barrier: dice.pick(&[Barrier::All, Barrier::All, Barrier::None]),
            tail: dice.pick(&[Tail::Short, Tail::Carry, Tail::Drop]),
            mix_window_min: dice.below(3) as u8,
            mix_enforce: dice.pick(&[Enforce::Record, Enforce::Take, Enforce::Plan]),
            gate_lag: dice.below(2) as u8,
            poll: Span::from_ns(dice.pick(&[0, 0, 7])),
            retry_max: dice.below(4) as u8,
            ..preset("staged-fifo").expect("it exists")
        };
        if policy.queue == Queue::Composed && policy.mix_window_min < 2 {
            policy.fill = dice.pick(&[Fill::Even, Fill::Even, Fill::Random, Fill::OneBucket]);
        }
        if dice.one_in(5) {
            policy.gate_high = dice.maybe(1, 100);
            policy.gate_low = dice.maybe(1, 80).filter(|_| policy.gate_high.is_some());
        }
        if dice.one_in(4) {
            policy.bytes_total = bytes(dice.maybe(1, 20));
            policy.bytes_per_bucket = bytes(dice.maybe(1, 6));
            policy.bytes_per_drafter = bytes(dice.maybe(1, 8));
        }
        let is_planned = |policy: &Policy| u32::from(policy.mix_window_min) <= work.grad_accum;
        if is_planned(&policy)
            && !work
                .findings(&policy)
                .iter()
                .any(|f| f.severity == Severity::Error)
        {
            return policy;
        }
    }
}

/// Losses before an instant, with a return, but for those that leave somebody; perhaps a stop. (ns)
fn draw_faults(dice: &mut Dice, policy: &Policy, before: u64) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    if dice.one_in(2) {
        return faults;
    }
    for _ in 0..dice.below(5) {
        let at = dice.below(before);
        let is_target = dice.one_in(2);
        let there = if is_target {
            policy.targets
        } else {
            policy.drafters
        };
        let who = dice.below(there.into()) as u16;
        let worker = if is_target {
            Worker::Target(who)
        } else {
            Worker::Drafter(who)
        };
        let is_late = is_target && policy.retry_max > 2 && dice.one_in(3);
        faults.push((
            at,
            if is_late {
                Fault::LoseLate(worker)
            } else {
                Fault::Lose(worker)
            },
        ));
        // The first of each kind is never lost for good.
        if who == 0 || dice.one_in(2) {
            faults.push((at + dice.below(300), Fault::Join(worker)));
        }
    }
    if dice.one_in(4) {
        faults.push((dice.below(2 * before), Fault::Stop));
    }
    faults.sort_by_key(|&(at, _)| at);
    faults
}

/// Runs one seed; returns the digest of its records and whether it ended.
fn run(seed: u64, met: &mut Met) -> (u64, bool) {
    let _named = Named(seed, FEW);
    let (driver, end) = run_case(&Case::draw(seed, FEW));
    met.count(driver.core.policy().queue, &driver.records);
    (driver.digest(), end == End::Done)
}

fn run_case(case: &Case) -> (Driver, End) {
    let mut driver = case.driver();
    let end = driver.run();
    if let End::Stalled(stall) = &end {
        assert!(
            !case.must_end(),
            "a run stalls that the check lets pass\n{}\n{stall}",
            driver.text()
        );
        assert!(!stall.waits.is_empty(), "a stall says who waits for what");
    }
    let metrics = driver.metrics();
    assert!(metrics.ledger.balances(), "{:?}", metrics.ledger);
    for worker in &metrics.workers {
        let sum: Span = worker.spans.iter().copied().sum();
        assert_eq!(
            sum, metrics.makespan,
            "{} accounts for its time",
            worker.worker
        );
    }
    check_replay(case, &driver);
    (driver, end)
}

fn check_replay(case: &Case, driver: &Driver) {
    let mut core = case.work.core(&case.policy);
    let detail = Detail {
        points: true,
        steps: true,
        timeline_steps: 3,
    };
    let mut meter = Meter::new(&core, detail);
    let mut records = driver.records.iter();
    let replayed = replay(&mut core, &driver.records, |at, event, core| {
        let actions = &records.next().expect("as many").actions;
        meter.observe(at, event, actions, core);
    });
    assert_eq!(replayed, Ok(()), "records replay");
    assert_eq!(core.state(), driver.core.state());
    assert_eq!(
        meter.finish(&core),
        driver.metrics(),
        "and give the same numbers"
    );
}

/// Prints the seed of a case that fails.
struct Named(u64, u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let case = Case::draw(self.0, self.1);
            std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!(
                    "seed {} fails\n{:?}\n{:?}\n{:?}\n{:?}\n",
                    self.0, case.policy, case.work, case.times, case.faults
                ),
            )
            .expect("standard error is open");
        }
    }
}

/// How often each kind of trouble met each discipline: a green run proves nothing about what never happened.
#[derive(Default)]
struct Met(std::collections::BTreeMap<(String, &'static str), u32>);

impl Met {
    fn count(&mut self, queue: Queue, records: &[Record]) {
        for event in records.iter().map(|r| r.event) {
            let failed = Outcome::Failed;
            let kind = match event {
                Event::ForwardEnded { outcome, .. } if outcome == failed => "forward failed",
                Event::StageEnded { outcome, .. } if outcome == failed => "stage failed",
                Event::FetchEnded { outcome, .. } if outcome == failed => "fetch failed",
                Event::TrainEnded { outcome, .. } if outcome == failed => "train failed",
                Event::TargetLost(_) => "target lost",
                Event::DrafterLost(_) => "drafter lost",
                Event::TargetJoined(_) => "target joined",
                Event::DrafterJoined(_) => "drafter joined",
                Event::StopAsked => "stop asked",
                _ => continue,
            };
            *self.0.entry((format!("{queue:?}"), kind)).or_insert(0) += 1;
        }
    }

    fn check(&self, least: u32) {
        assert_eq!(self.0.len(), 5 * 9, "every trouble meets every discipline");
        for (what, &times) in &self.0 {
            assert!(
                times >= least,
                "{what:?} happened {times} times, not {least}"
            );
        }
    }
}

/// Microbatches an epoch, at most: every course is kept.
const FEW: u64 = 16;

/// Seeds to run: a debug build is slower.
const SEEDS: u64 = if cfg!(debug_assertions) {
    2_000
} else {
    10_000
};

#[test]
fn whatever_a_seed_draws_ends_and_replays() {
    let (mut ended, mut stalled) = (0, 0);
    let mut met = Met::default();
    for seed in 0..SEEDS {
        let (_, is_done) = run(seed, &mut met);
        ended += u64::from(is_done);
        stalled += u64::from(!is_done);
    }
    met.check(SEEDS as u32 / 200);
    assert!(ended > SEEDS * 8 / 10, "{ended} ended, {stalled} stalled");
}

#[test]
fn long_runs_let_go_of_what_has_ended() {
    const MANY: u64 = 400;
    let (mut let_go, mut given_up) = (0, 0);
    for seed in 0..SEEDS / 100 {
        let _named = Named(seed, MANY);
        let (driver, _) = run_case(&Case::draw(seed, MANY));
        let lives = &driver.core.state().lives;
        let first = lives.kept().next().map_or(0, |(id, _)| id.index());
        let_go += u32::from(first > 0);
        let mut before = lives.statuses().take(first);
        given_up += u32::from(before.any(|status| status == Status::Failed));
    }
    assert!(
        let_go > 10 && given_up > 2,
        "{let_go} let go, {given_up} with failures"
    );
}

#[test]
fn one_seed_gives_one_digest_and_another_seed_another() {
    let mut digests = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let (first, _) = run(seed, &mut Met::default());
        assert_eq!(first, run(seed, &mut Met::default()).0, "seed {seed}");
        digests.insert(first);
    }
    assert!(digests.len() > 190, "{} of 200 differ", digests.len());
}

#[test]
fn a_random_choice_hangs_on_the_seed_and_every_discipline_on_the_policy() {
    let digest = |queue, take, seed| {
        let policy = Policy {
            queue,
            take,
            mix_step_min: 0,
            mix_enforce: Enforce::Record,
            placement: Placement::Target,
            ..preset("bucketed").expect("it exists")
        };
        let mut work = Work::round(60, 5, 2);
        work.seed = seed;
        let times = Times {
            train: 300,
            spread: 150,
            ..Times::STEADY
        };
        let mut driver = Driver::new(work.core(&policy), times);
        assert_eq!(driver.run(), End::Done);
        driver.digest()
    };
    let random = |seed| digest(Queue::Bucketed, Take::Random, seed);
    assert_eq!(random(1), random(1));
    assert_ne!(random(1), random(2));
    let mut all = vec![
        digest(Queue::Fifo, Take::RoundRobin, 1),
        digest(Queue::PerDrafter, Take::RoundRobin, 1),
        digest(Queue::Dealt, Take::RoundRobin, 1),
        digest(Queue::Composed, Take::RoundRobin, 1),
        digest(Queue::Bucketed, Take::RoundRobin, 1),
        digest(Queue::Bucketed, Take::Longest, 1),
        digest(Queue::Bucketed, Take::Random, 1),
    ];
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 7, "no two disciplines make the same decisions");
}
