use shared::draw::Seed;
use sim::validate::*;
fn main() {
    let shorter: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let only = std::env::args().nth(2);
    let t0 = std::time::Instant::now();
    for case in suite() {
        if only
            .as_ref()
            .is_some_and(|o| !case.name().contains(o.as_str()))
        {
            continue;
        }
        let t = std::time::Instant::now();
        let r = case.validate(Seed(7), Effort { shorter }, &|_| {});
        println!(
            "{} [{}] {} items {:.2} s {:.2} M/s {}",
            r.case,
            r.how,
            r.items,
            t.elapsed().as_secs_f64(),
            r.items as f64 / t.elapsed().as_secs_f64() / 1e6,
            r.broken.join("; ")
        );
        for f in &r.findings {
            println!(
                "    {:24} exact {:<16} sim {:.6} +- {:.6} width {:.3}% {:?} off {:.2} hw",
                f.exact.metric,
                f.exact.value,
                f.simulated,
                f.half_width,
                f.width * 100.0,
                f.verdict,
                (f.simulated - f.exact.value) / f.half_width
            );
        }
    }
    println!("{:.1} s", t0.elapsed().as_secs_f64());
}
