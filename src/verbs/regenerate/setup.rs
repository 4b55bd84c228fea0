//! What a regeneration needs, loaded and fitting each other. Nothing is written.

use super::answers::Made;
use crate::cli::RegenerateArgs;
use crate::failure::Failure;
use crate::scenario::sections;
use crate::verbs::data;
use crate::verbs::eval::{ends, of_prompts};
use crate::verbs::exec::cpu::{check_tokenizer, check_vocab, target};
use exec::config::TargetSection;
use exec::data::{Rules, Tokenizer};
use exec::decode::{Asking, GenerateLimits, Prompt, Sampling, read_prompts};
use exec::model::Target;
use shared::record::Digest;
use std::path::Path;

/// Target, tokenizer, prompts and limits.
pub(super) struct Setup {
    pub(super) target: Target,
    pub(super) tokenizer: Tokenizer,
    /// Among them the chat template.
    pub(super) rules: Rules,
    pub(super) source: Source,
    /// Lines of the file left out: too long, repeated.
    pub(super) left_out: [usize; 2],
    pub(super) limits: GenerateLimits,
    /// Prompts answered at once.
    pub(super) batch: usize,
    /// What every row says about how it was made.
    pub(super) made: Made,
    /// Whether rows hold their exact tokens too.
    pub(super) with_tokens: bool,
}

/// Where prompts come from.
pub(super) enum Source {
    /// A file.
    File(Vec<Prompt>),
    /// The target itself: so many.
    Target(usize),
}

impl Setup {
    pub(super) fn of(args: &RegenerateArgs) -> Result<Self, Failure> {
        check_counts(args)?;
        let (target, tokenizer, rules) = models(args)?;
        check_vocab(&tokenizer, &target)?;
        let (source, left_out) = match (&args.prompts, args.self_prompt) {
            (Some(path), _) => prompts(path, args, &tokenizer, &rules)?,
            (None, count) => (Source::Target(count.unwrap_or(0)), [0, 0]),
        };
        let limits = GenerateLimits {
            new_tokens_max: args.max_new_tokens,
            ends: ends(&tokenizer, &target),
            // The drafter's mask means nothing to the target.
            never: tokenizer.mask_id().into_iter().collect(),
            loop_period_max: args.loop_period_max,
            sampling: Sampling {
                temperature: args.temperature,
                seed: args.seed,
            },
        };
        let made = Made {
            target: fingerprint(&target)?,
            temperature: args.temperature,
            // Greedy answers do not depend on it.
            seed: match args.temperature > 0.0 || args.self_prompt.is_some() {
                true => args.seed,
                false => 0,
            },
            max_new_tokens: args.max_new_tokens,
            loop_period_max: args.loop_period_max,
        };
        Ok(Self {
            target,
            tokenizer,
            rules,
            source,
            left_out,
            limits,
            batch: args.batch,
            made,
            with_tokens: args.with_tokens,
        })
    }

    /// Prompts to be answered in all.
    pub(super) fn total(&self) -> usize {
        match &self.source {
            Source::File(prompts) => prompts.len(),
            Source::Target(count) => *count,
        }
    }
}

fn check_counts(args: &RegenerateArgs) -> Result<(), Failure> {
    for (flag, value) in [
        ("--prompts-max", args.prompts_max),
        ("--prompt-tokens-max", args.prompt_tokens_max),
        ("--max-new-tokens", args.max_new_tokens),
        ("--batch", args.batch),
        ("--self-prompt", args.self_prompt.unwrap_or(1)),
    ] {
        if value == 0 {
            return Err(Failure::usage(format!(
                "{flag} 0: must be at least 1; raise it"
            )));
        }
    }
    if !(args.temperature >= 0.0 && args.temperature.is_finite()) {
        return Err(Failure::usage(format!(
            "--temperature {}: must be finite and at least 0; write 0 for the most likely tokens or 1 for the target's own distribution",
            args.temperature
        )));
    }
    Ok(())
}

fn models(args: &RegenerateArgs) -> Result<(Target, Tokenizer, Rules), Failure> {
    if let Some(path) = &args.policy {
        let file = sections(path, &args.sets)?;
        let section = file.exec;
        check_tokenizer(&section)?;
        let tokenizer = data::tokenizer(&section.data)?;
        let target = target(&section.target, &tokenizer, file.seed)?;
        let rules = section.data.rules().map_err(Failure::usage)?;
        return Ok((target, tokenizer, rules));
    }
    let path = args.target.clone().unwrap_or_default();
    let tokenizer = match &args.tokenizer {
        Some(byte) if byte == "byte" => Tokenizer::byte(),
        Some(file) => Tokenizer::from_file(Path::new(file)).map_err(data::of_data)?,
        None => Tokenizer::from_file(&path).map_err(data::of_data)?,
    };
    let section = TargetSection {
        path: Some(path),
        ..TargetSection::default()
    };
    let rules = Rules::new(u32::MAX);
    Ok((target(&section, &tokenizer, 0)?, tokenizer, rules))
}

fn prompts(
    path: &Path,
    args: &RegenerateArgs,
    tokenizer: &Tokenizer,
    rules: &Rules,
) -> Result<(Source, [usize; 2]), Failure> {
    let asking = Asking::new(tokenizer, rules).map_err(data::of_data)?;
    let found = read_prompts(path, &asking, args.prompts_max, args.prompt_tokens_max)
        .map_err(of_prompts)?;
    if let Some(bare) = found.prompts.iter().find(|p| p.messages.is_empty()) {
        return Err(Failure::data(format!(
            "{}: prompt {} is bare text or tokens, which have no turn to answer; give messages, conversations or prompt",
            path.display(),
            bare.id
        )));
    }
    let left_out = [found.too_long, found.repeated];
    Ok((Source::File(found.prompts), left_out))
}

/// What keys a prompt's draws: its id.
pub(super) fn stream_of(id: &str) -> u64 {
    let mut digest = Digest::default();
    digest.add(id.as_bytes());
    digest.finish()
}

/// A fingerprint by which two targets are told apart: sizes, and the first rows of the embedding.
fn fingerprint(target: &Target) -> Result<String, Failure> {
    let embed = target.embed();
    let rows = embed.dim(0).unwrap_or(0).min(16);
    let values = embed
        .narrow(0, 0, rows)
        .and_then(|rows| rows.flatten_all()?.to_vec1::<f32>())
        .map_err(|e| Failure::new(crate::failure::code::WORKER, e))?;
    let mut digest = Digest::default();
    digest.add(format!("{:?}", target.config()).as_bytes());
    for value in values {
        digest.word(u64::from(value.to_bits()));
    }
    Ok(format!("{:016x}", digest.finish()))
}
