//! What an evaluation needs, loaded and fitting each other. Nothing is written.

use super::checkpoints::{Found, find};
use super::{held_out, loss};
use crate::cli::{EvalArgs, VerifyArg};
use crate::failure::Failure;
use crate::scenario::{Sections, sections};
use crate::verbs::data;
use crate::verbs::exec::cpu::{check_tokenizer, check_vocab, target};
use exec::data::Tokenizer;
use exec::decode::{Asking, Limits, Prompt, PromptError, Prompts, read_prompts};
use exec::model::{Drafter, DrafterConfig, Target};
use sim::spec::Buckets;
use std::path::PathBuf;

/// Models, prompts and limits.
pub(super) struct Setup {
    pub(super) file: Sections,
    pub(super) target: Target,
    /// What is compared: trained drafters by rising step, the untrained one, n-grams.
    pub(super) drafters: Vec<Named>,
    pub(super) prompts: Vec<Prompt>,
    /// Where the prompts come from, with what was left out.
    pub(super) source: Source,
    pub(super) limits: Limits,
    /// Tokens drafted a round.
    pub(super) slots: usize,
    /// Upper edges of the length buckets. (tokens)
    pub(super) edges: Vec<u32>,
    /// Samples to measure the loss on.
    pub(super) loss_on: Option<loss::Samples>,
}

/// Where prompts come from.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) too_long: usize,
    pub(super) repeated: usize,
}

/// A drafter with its name.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Whether the target itself verifies its drafts.
    pub(super) is_real: bool,
}

/// Who drafts.
pub(super) enum Kind {
    /// A checkpoint.
    Trained {
        drafter: Box<Drafter>,
        step: Option<u64>,
        path: PathBuf,
    },
    /// The same drafter with random weights.
    Untrained(Box<Drafter>),
    /// Prompt lookup.
    Ngram,
}

impl Setup {
    pub(super) fn of(args: &EvalArgs) -> Result<Self, Failure> {
        check_counts(args)?;
        let file = sections(&args.policy, &args.sets)?;
        let section = file.exec.clone();
        let found = match (&args.checkpoint[..], &section.drafter.path) {
            ([], None) => {
                return Err(Failure::usage(
                    "no drafter to evaluate; give --checkpoint with the folder that `dflash exec` wrote, or set exec.drafter.path",
                ));
            }
            ([], Some(path)) => find("exec.drafter.path", std::slice::from_ref(path))?,
            (paths, _) => find("--checkpoint", paths)?,
        };
        let configs = found.iter().map(|found| {
            DrafterConfig::load(&found.path).map_err(|e| Failure::data(format!("drafter: {e}")))
        });
        let configs = configs.collect::<Result<Vec<_>, _>>()?;
        let config = one_shape(&found, &configs)?.clone();
        check_tokenizer(&section)?;
        let tokenizer = data::tokenizer(&section.data)?;
        let target = target(&section.target, &tokenizer, file.seed)?;
        let unfit = |e: exec::model::ModelError| {
            let newest = found.last().map(|found| found.path.display().to_string());
            Failure::data(format!("{}: {e}", newest.unwrap_or_default()))
        };
        config.check_target(target.config()).map_err(unfit)?;
        let target = target.capturing(&config.target_layer_ids).map_err(unfit)?;
        check_vocab(&tokenizer, &target)?;
        let limits = Limits {
            new_tokens_max: args.max_new_tokens,
            ends: ends(&tokenizer, &target),
        };
        let drafters = drafters(&found, &config, &target, file.seed, args.verify)?;
        let (source, prompts) = prompts(args, &file, &tokenizer)?;
        check_vocab_of(&prompts, &target)?;
        let loss_on = match &args.loss_on {
            Some(path) => Some(loss::Samples::load(path, &section, &config, file.seed)?),
            None => None,
        };
        Ok(Self {
            loss_on,
            edges: edges(args, &file),
            slots: config.block_size - 1,
            source,
            prompts,
            drafters,
            limits,
            target,
            file,
        })
    }
}

/// Tokens that end an answer: those that the tokenizer and the target's config name.
pub(crate) fn ends(tokenizer: &Tokenizer, target: &Target) -> Vec<u32> {
    let mut ends: Vec<u32> = [tokenizer.eos_id(), target.config().eos_token_id]
        .into_iter()
        .flatten()
        .collect();
    ends.dedup();
    ends
}

fn check_counts(args: &EvalArgs) -> Result<(), Failure> {
    for (flag, value) in [
        ("--prompts-max", args.prompts_max),
        ("--prompt-tokens-max", args.prompt_tokens_max),
        ("--max-new-tokens", args.max_new_tokens),
    ] {
        if value == 0 {
            return Err(Failure::usage(format!(
                "{flag} 0: must be at least 1; raise it"
            )));
        }
    }
    match args.edges.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(Failure::usage(format!(
            "--edges: {} must be above {}; write rising edges such as 128,256,512",
            pair[1], pair[0]
        ))),
        None => Ok(()),
    }
}

/// The shape that all drafters share: one comparison has one target, one block size and one set of captured layers.
fn one_shape<'a>(
    found: &[Found],
    configs: &'a [DrafterConfig],
) -> Result<&'a DrafterConfig, Failure> {
    let newest = &configs[configs.len() - 1];
    for (found, config) in found.iter().zip(configs) {
        let shapes = [
            (
                "block_size",
                config.block_size.to_string(),
                newest.block_size.to_string(),
            ),
            (
                "target_layer_ids",
                format!("{:?}", config.target_layer_ids),
                format!("{:?}", newest.target_layer_ids),
            ),
        ];
        if let Some((key, have, want)) = shapes.into_iter().find(|(_, have, want)| have != want) {
            return Err(Failure::usage(format!(
                "{}: {key} is {have}, and {want} in the newest checkpoint; evaluate drafters of one shape together",
                found.path.display()
            )));
        }
    }
    Ok(newest)
}

fn drafters(
    found: &[Found],
    config: &DrafterConfig,
    target: &Target,
    seed: u64,
    verify: VerifyArg,
) -> Result<Vec<Named>, Failure> {
    let all = verify == VerifyArg::All;
    let mut drafters = Vec::new();
    for (number, checkpoint) in (1..).zip(found) {
        let drafter = Drafter::load(&checkpoint.path, target)
            .map_err(|e| Failure::data(format!("{}: {e}", checkpoint.path.display())))?;
        let is_newest = number == found.len() && verify == VerifyArg::Newest;
        drafters.push(Named {
            name: match checkpoint.step {
                Some(step) => format!("step {step}"),
                None => "trained".to_owned(),
            },
            is_real: all || is_newest,
            kind: Kind::Trained {
                drafter: Box::new(drafter),
                step: checkpoint.step,
                path: checkpoint.path.clone(),
            },
        });
    }
    let untrained = Drafter::random(config.clone(), seed ^ UNTRAINED_SEED, target)
        .map_err(|e| Failure::data(format!("untrained drafter: {e}")))?;
    drafters.push(Named {
        name: "untrained".to_owned(),
        is_real: all,
        kind: Kind::Untrained(Box::new(untrained)),
    });
    drafters.push(Named {
        name: "n-gram".to_owned(),
        is_real: all,
        kind: Kind::Ngram,
    });
    Ok(drafters)
}

/// Sets the untrained drafter's weights apart from those that training began with.
const UNTRAINED_SEED: u64 = 0x756e_7472;

/// The prompts of the file or those held out.
fn prompts(
    args: &EvalArgs,
    file: &Sections,
    tokenizer: &Tokenizer,
) -> Result<(Source, Vec<Prompt>), Failure> {
    let (name, found) = match &args.prompts {
        Some(path) => {
            let rules = file.exec.data.rules().map_err(Failure::usage)?;
            let asking = Asking::new(tokenizer, &rules).map_err(data::of_data)?;
            let found = read_prompts(path, &asking, args.prompts_max, args.prompt_tokens_max);
            (path.display().to_string(), found.map_err(of_prompts)?)
        }
        None => (
            "samples held out of exec.data".to_owned(),
            held_out::prompts(file, args.prompts_max, args.prompt_tokens_max)?,
        ),
    };
    let Prompts {
        prompts,
        too_long,
        repeated,
    } = found;
    let source = Source {
        name,
        too_long,
        repeated,
    };
    Ok((source, prompts))
}

/// The exit code of a file of prompts that cannot be used.
pub(crate) fn of_prompts(error: PromptError) -> Failure {
    match error {
        PromptError::Read { .. } => Failure::usage(error),
        PromptError::Line { .. } | PromptError::Empty { .. } => Failure::data(error),
    }
}

/// Refuses prompts with tokens that the target does not embed.
fn check_vocab_of(prompts: &[Prompt], target: &Target) -> Result<(), Failure> {
    let rows = target.config().geometry.vocab_size;
    for prompt in prompts {
        if let Some(id) = prompt.ids.iter().find(|&&id| id as usize >= rows) {
            return Err(Failure::data(format!(
                "prompt {}: token {id} is outside the target's vocabulary of {rows}; give prompts in the target's own tokens",
                prompt.id
            )));
        }
    }
    Ok(())
}

/// The edges asked for, else those of the policy's buckets.
fn edges(args: &EvalArgs, file: &Sections) -> Vec<u32> {
    match (&args.edges[..], &file.workload.buckets) {
        ([], Buckets::Edges(edges)) => edges.clone(),
        (edges, _) => edges.to_vec(),
    }
}
