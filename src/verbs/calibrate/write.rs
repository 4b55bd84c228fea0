//! `costs.toml`, `calibration.csv` and what is said of them.

use super::measure::transport_name;
use super::{Calibrated, Measure};
use crate::failure::Failure;
use crate::output::OutputDir;
use exec::calibrate::Stage;
use serde::Serialize;
use shared::load::Rests;
use shared::record::Digest;
use sim::spec::{ByteSize, Link, Sharing};

/// The parts of a scenario that a calibration knows. Laid over a scenario, they replace what it assumed.
#[derive(Serialize)]
struct Fragment<'a> {
    costs: CostsPart<'a>,
    hardware: HardwarePart<'a>,
}

#[derive(Serialize)]
struct CostsPart<'a> {
    step_ms: f64,
    all_reduce_ms: f64,
    spread: f64,
    distribution: sim::spec::Distribution,
    target: StagePart<'a>,
    drafter: StagePart<'a>,
}

/// A formula whose empty table takes the place of one that a scenario may hold.
#[derive(Serialize)]
struct StagePart<'a> {
    #[serde(flatten)]
    cost: &'a sim::spec::StageCost,
    table: [u8; 0],
}

#[derive(Serialize)]
struct HardwarePart<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_memory: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sharing: Option<&'a Sharing>,
    #[serde(skip_serializing_if = "Rests::is_none")]
    rests: Rests,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_pageable: Option<&'a Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_pinned: Option<&'a Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p2p: Option<&'a Link>,
}

impl Calibrated {
    fn body(&self) -> Result<String, Failure> {
        use shared::policy::Transport;
        let costs = &self.costs;
        let stage = |cost| StagePart { cost, table: [] };
        let link = |transport| self.links.get(&transport);
        let fragment = Fragment {
            costs: CostsPart {
                step_ms: costs.step_ms,
                all_reduce_ms: costs.all_reduce_ms,
                spread: costs.spread,
                distribution: costs.distribution,
                target: stage(&costs.target),
                drafter: stage(&costs.drafter),
            },
            hardware: HardwarePart {
                gpus: self.gpus,
                gpu_memory: self.free.iter().map(|(_, free)| *free).min(),
                sharing: self.sharing.as_ref(),
                rests: self.rests,
                host_pageable: link(Transport::HostPageable),
                host_pinned: link(Transport::HostPinned),
                p2p: link(Transport::P2p),
            },
        };
        toml::to_string_pretty(&fragment)
            .map_err(|e| Failure::usage(format!("costs.toml: cannot be written as TOML: {e}")))
    }

    /// Fingerprint of what `costs.toml` says.
    pub(crate) fn hash(&self) -> String {
        let mut digest = Digest::default();
        digest.add(self.body().unwrap_or_default().as_bytes());
        format!("{:016x}", digest.finish())
    }

    /// Writes both files; `files` is what was measured for.
    pub(crate) fn write(&self, dir: &OutputDir, files: &str) -> Result<(), Failure> {
        let mut head = format!(
            "# Measured by `dflash calibrate {files} --backend {}`, version {}, hash {}.\n# Lay it over the scenario: `dflash sim {files} costs.toml`.\n",
            self.backend,
            env!("CARGO_PKG_VERSION"),
            self.hash()
        );
        for line in self.lines() {
            head.push_str(&format!("# {line}\n"));
        }
        dir.write("costs.toml", format!("{head}\n{}", self.body()?).as_bytes())?;
        dir.write("calibration.csv", &self.csv())?;
        Ok(())
    }

    /// What was found, for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{:<15} {:<14} {:>14} {:>4} {:>10} {:>8} {:>10} {:>10} {:>8}",
            "stage", "transport", "bucket", "n", "median", "spread", "first use", "fit", "error"
        )];
        for row in &self.measures {
            lines.push(format!(
                "{:<15} {:<14} {:>14} {:>4} {:>7.3} ms {:>6.1} % {:>7.2} ms {:>7.3} ms {:>+6.1} %",
                row.stage.name(),
                row.transport.map_or("", transport_name),
                row.bucket,
                row.count,
                row.median,
                100.0 * row.spread,
                row.first,
                row.fitted,
                100.0 * row.error(),
            ));
        }
        for (stage, error) in &self.errors {
            lines.push(format!(
                "fit of {stage}: {:.2} % off on average, {:.2} % at most",
                100.0 * error.mean,
                100.0 * error.max
            ));
        }
        for (transport, link) in &self.links {
            let gb = |rate: sim::spec::Rate| rate.bytes_per_s() / 1e9;
            let inward = link
                .bandwidth_in
                .map_or_else(String::new, |rate| format!(" out, {:.2} GB/s in", gb(rate)));
            lines.push(format!(
                "link {}: {:.2} GB/s{inward}, {:.3} ms latency, beside compute{}{}",
                transport_name(*transport),
                gb(link.bandwidth),
                link.latency_ms,
                link.compute_rate.map_or_else(String::new, |rate| {
                    format!(", which then goes at {rate:.3} of its speed")
                }),
                link.both_ways_rate.map_or_else(String::new, |rate| {
                    format!("; each way at {rate:.3} of that while copies go the other way")
                })
            ));
        }
        for b in &self.beside {
            lines.push(format!(
                "{} beside {} by {}: {:.3} of its speed alone",
                b.stage.name(),
                match b.copies {
                    Stage::CopyOut => "copies out",
                    _ => "copies in",
                },
                transport_name(b.transport),
                b.rate
            ));
        }
        for t in &self.together {
            lines.push(format!(
                "{} forwards + {} trainings on one device: each forward at {:.3} of its speed alone, each training at {:.3} ({} pieces)",
                t.forwards, t.trains, t.forward_rate, t.train_rate, t.pieces
            ));
        }
        if let Some(rate) = self.sharing.as_ref().and_then(|s| s.step_rate) {
            lines.push(format!(
                "optimizer step beside a forward on one device: {rate:.3} of its speed alone"
            ));
        }
        if let Some(ratio) = self.sharing.as_ref().and_then(|s| s.kernel_ratio) {
            lines.push(format!(
                "the device takes turns by kernels: {ratio:.2} of a training for each of a forward"
            ));
        }
        for (work, rest) in [
            ("forwards", self.rests.forward),
            ("trainings", self.rests.train),
        ] {
            if let Some(rest) = rest {
                lines.push(format!(
                    "{work} on a device that computes for 70 % of the time go at {:.3} of the speed that they have at {:.0} %; {:.3} at most",
                    rest.speed(0.7),
                    100.0 * rest.busy,
                    rest.speed_max
                ));
            }
        }
        for (device, free) in &self.free {
            lines.push(format!("{device}: {free} free before anything was taken"));
        }
        lines.extend(self.unsteady());
        lines
    }

    fn csv(&self) -> Vec<u8> {
        let in_memory = "writing to memory cannot fail";
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record([
            "stage",
            "transport",
            "bucket",
            "count",
            "median_ms",
            "spread",
            "first_ms",
            "mean_ms",
            "fitted_ms",
            "error",
        ])
        .expect(in_memory);
        for row in &self.measures {
            let number = |x: f64| format!("{x:.6}");
            csv.write_record([
                row.stage.name().to_owned(),
                row.transport.map_or("", transport_name).to_owned(),
                row.bucket.clone(),
                row.count.to_string(),
                number(row.median),
                number(row.spread),
                number(row.first),
                number(row.mean),
                number(row.fitted),
                number(row.error()),
            ])
            .expect(in_memory);
        }
        csv.into_inner().expect(in_memory)
    }
}

impl Measure {
    /// Of the fit, as a share of what was measured.
    pub(super) fn error(&self) -> f64 {
        if self.mean > 0.0 {
            self.fitted / self.mean - 1.0
        } else {
            0.0
        }
    }
}
