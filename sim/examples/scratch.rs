use sim::*; use serde::Deserialize;
#[derive(Deserialize)]
struct S { workload: spec::Workload, training: spec::Training, model: spec::Model, hardware: spec::Hardware, costs: spec::Costs, policy: Vec<shared::policy::Overrides>, seed: u64 }
fn main(){
  let s: S = toml::from_str(&std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap()).unwrap();
  let seed = shared::draw::Seed(s.seed);
  let lengths = draw_lengths(&s.workload, seed).unwrap_or_default();
  for p in &s.policy {
    let r = Resolved{seed, workload: s.workload.clone(), training: s.training.clone(), model: s.model.clone(), hardware: s.hardware.clone(), costs: s.costs.clone(), faults: vec![], policy: p.resolve().unwrap()};
    let w = prepare(&r,&lengths).unwrap();
    let t=std::time::Instant::now();
    let o = run(&r,&w,Default::default(),&mut Nobody);
    let dt=t.elapsed();
    match o { Err(e)=>println!("{e}"), Ok(o)=>{ let m=&o.metrics;
      println!("{:15} {:?} thr {:.0} run {:.0} bound {:.0} ({}) share {:.4} slots {} bytes {:.1}GB alive {} host {:.1}GB mean slots {:.1} mix min {} tv {:.3}/{:.3} exc {} w2 {:.3} | T busy {:.3} blk {:.3} copy {:.3} | D busy {:.3} starv {:.3} copy {:.3} bar {:.3} pad {:.3} mb {} steps {} wall {:?} overflow {:?}", r.policy.name, std::mem::discriminant(&o.end), m.tokens_per_s(), m.run_tokens_per_s(), o.bound.tokens_per_s(), o.bound.bottleneck(), m.tokens_per_s()/o.bound.tokens_per_s(), m.peaks.slots, m.peaks.slot_bytes.0 as f64/1e9, m.peaks.alive, m.peaks.host.0 as f64/1e9, m.peaks.slots_mean(m.end()), m.mix.distinct_min, m.mix.tv_mean, m.mix.tv_max, m.mix.exceptions, m.mix.windows_at_most_two,
      m.target_share(shared::core::Activity::Busy), m.target_share(shared::core::Activity::Blocked), m.target_share(shared::core::Activity::Copying),
      m.drafter_share(shared::core::Activity::Busy), m.drafter_share(shared::core::Activity::Starved), m.drafter_share(shared::core::Activity::Copying), m.drafter_share(shared::core::Activity::Barrier), m.padding(), m.microbatches, m.steps, dt, o.overflow);
      if let End::Deadlock(s)=o.end { println!("{s}"); }
    }}
  }
}
