//! `/metrics` for Prometheus while a run goes on, in the text format 0.0.4.
//!
//! Numbers are set from the run's own records at every optimizer step and a few times a second; a scrape reads what was set last and
//! never waits for the run.

use crate::failure::Failure;
use exec::progress::Progress;
use prometheus::{
    Encoder, Gauge, GaugeVec, IntCounter, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use shared::core::{Activity, Core, Status};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Response, Server};

/// The server and the numbers it shows. It is closed when dropped.
pub(crate) struct Exporter {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    address: Option<SocketAddr>,
    numbers: Numbers,
}

impl Exporter {
    /// Listens at `address`.
    ///
    /// # Errors
    /// Usage: the address is taken or not this machine's.
    pub(crate) fn listen(address: &str) -> Result<Self, Failure> {
        let refused = |e: &dyn std::fmt::Display| {
            Failure::usage(format!(
                "exec.observe.prometheus: {address}: cannot listen there: {e}; choose another port, or 0 for a free one"
            ))
        };
        let registry = Registry::new();
        let numbers = Numbers::register(&registry).map_err(|e| refused(&e))?;
        let server = Arc::new(Server::http(address).map_err(|e| refused(&e))?);
        let own = Arc::clone(&server);
        let serve = move || {
            for request in own.incoming_requests() {
                // Whoever went away without its answer has none to miss.
                let _ = answer(request, &registry);
            }
        };
        let thread = std::thread::Builder::new()
            .name("prometheus".into())
            .spawn(serve)
            .map_err(|e| refused(&e))?;
        Ok(Self {
            address: server.server_addr().to_ip(),
            server,
            thread: Some(thread),
            numbers,
        })
    }

    /// Where it listens, with the port that was chosen.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Shows the state of the run after its last record.
    pub(crate) fn show(&self, core: &Core, progress: &Progress) {
        self.numbers.set(core, progress);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; the run does not depend on it.
            let _ = thread.join();
        }
    }
}

fn answer(request: tiny_http::Request, registry: &Registry) -> std::io::Result<()> {
    let path = request.url().split('?').next().unwrap_or_default();
    if path != "/metrics" {
        let text = "metrics are at /metrics\n";
        return request.respond(Response::from_string(text).with_status_code(404));
    }
    if !matches!(request.method(), Method::Get | Method::Head) {
        return request.respond(Response::empty(405));
    }
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    if let Err(error) = encoder.encode(&registry.gather(), &mut text) {
        let response = Response::from_string(error.to_string()).with_status_code(500);
        return request.respond(response);
    }
    let kind = Header::from_bytes("Content-Type", encoder.format_type());
    let response = Response::from_data(text);
    request.respond(match kind {
        Ok(kind) => response.with_header(kind),
        Err(()) => response,
    })
}

/// Every number by its meaning.
struct Numbers {
    samples: IntCounter,
    tokens: IntCounter,
    steps: IntCounter,
    microbatches: IntGaugeVec,
    slots: IntGauge,
    slots_max: IntGauge,
    bytes: IntGauge,
    throughput: Gauge,
    done: Gauge,
    targets: GaugeVec,
    drafters: GaugeVec,
}

impl Numbers {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let whole = |name: &str, help: &str| {
            let made = IntGauge::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let gauge = |name: &str, help: &str| {
            let made = Gauge::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let shares = |name: &str, help: &str| {
            let made = GaugeVec::new(Opts::new(name, help), &["activity"])?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let opts = Opts::new(
            "dflash_microbatches",
            "Microbatches by where they are on their way",
        );
        let microbatches = IntGaugeVec::new(opts, &["state"])?;
        registry.register(Box::new(microbatches.clone()))?;
        Ok(Self {
            samples: counter(
                "dflash_samples_total",
                "Samples that are part of the weights",
            )?,
            tokens: counter("dflash_tokens_total", "Tokens trained on, padding left out")?,
            steps: counter("dflash_steps_total", "Optimizer steps applied")?,
            microbatches,
            slots: whole("dflash_hs_slots", "Slots of hidden states in use")?,
            slots_max: whole(
                "dflash_hs_slots_max",
                "The policy's cap on slots, 0 where it has none",
            )?,
            bytes: whole("dflash_hs_bytes", "Bytes of hidden states in slots")?,
            throughput: gauge(
                "dflash_tokens_per_second",
                "Tokens trained on a second, recently",
            )?,
            done: gauge(
                "dflash_done_ratio",
                "Share of the planned tokens that are trained",
            )?,
            targets: shares(
                "dflash_target_time_ratio",
                "Share of the target workers' time by what they do; blocked: waiting for a slot",
            )?,
            drafters: shares(
                "dflash_drafter_time_ratio",
                "Share of the drafter workers' time by what they do; starved: waiting for hidden states",
            )?,
        })
    }

    fn set(&self, core: &Core, progress: &Progress) {
        let mut states = [0_i64; STATES.len()];
        let mut samples = 0;
        for (row, status) in core.state().lives.statuses().enumerate() {
            states[status as usize] += 1;
            if status == Status::Committed {
                samples += u64::from(core.plan().microbatches[row].sample_count());
            }
        }
        for (name, count) in STATES.iter().zip(states) {
            self.microbatches.with_label_values(&[name]).set(count);
        }
        let status = progress.status(core);
        raise(&self.samples, samples);
        raise(&self.tokens, progress.trained().0);
        raise(&self.steps, u64::from(status.steps));
        let whole = |x: u64| i64::try_from(x).unwrap_or(i64::MAX);
        self.slots.set(i64::from(status.slots.count));
        self.slots_max.set(i64::from(status.slots_max.unwrap_or(0)));
        self.bytes.set(whole(status.slots.bytes.0));
        self.throughput.set(status.throughput.unwrap_or(0.0));
        self.done.set(status.done);
        for activity in Activity::ALL {
            let (i, name) = (activity.index(), activity.name());
            let set = |family: &GaugeVec, share: f64| family.with_label_values(&[name]).set(share);
            set(&self.targets, progress.target_shares()[i]);
            set(&self.drafters, progress.drafter_shares()[i]);
        }
    }
}

/// Names of [`Status`], in its order.
const STATES: [&str; 12] = [
    "pending",
    "forwarding",
    "held",
    "staging",
    "queued",
    "fetching",
    "ready",
    "training",
    "trained",
    "committed",
    "failed",
    "skipped",
];

/// Counters only rise.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn every_state_has_its_name() {
        assert_eq!(STATES[Status::Pending as usize], "pending");
        assert_eq!(STATES[Status::Committed as usize], "committed");
        assert_eq!(STATES[Status::Skipped as usize], "skipped");
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn metrics_are_served_and_a_taken_address_is_refused() {
        let exporter = Exporter::listen("127.0.0.1:0").unwrap();
        let address = exporter.address().unwrap();
        let text = get(address, "/metrics");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(
            text.contains("Content-Type: text/plain; version=0.0.4"),
            "{text}"
        );
        assert!(text.contains("# TYPE dflash_steps_total counter"), "{text}");
        assert!(
            text.contains("# HELP dflash_hs_bytes Bytes of hidden states"),
            "{text}"
        );
        assert!(get(address, "/").starts_with("HTTP/1.1 404"));
        let Err(taken) = Exporter::listen(&address.to_string()) else {
            panic!("two servers at one address");
        };
        assert_eq!(taken.code, crate::failure::code::USAGE);
        assert!(
            taken
                .message
                .starts_with("exec.observe.prometheus: 127.0.0.1:"),
            "{}",
            taken.message
        );
        assert!(
            taken
                .message
                .ends_with("choose another port, or 0 for a free one")
        );
    }
}
