//! Targets that remember what they have read.

use candle_core::Tensor;

use super::choice::choices;
use super::generate::Batch;
use super::verifier::{Extension, Verifier};
use crate::model::{BatchSession, ModelError, Target, TargetSession};

/// One growing text before a target: each token is read once.
#[derive(Debug)]
pub struct SessionVerifier {
    target: Target,
    session: TargetSession,
}

impl SessionVerifier {
    /// An empty text before `target`.
    ///
    /// Errors: the tensor library's.
    pub fn new(target: &Target) -> Result<Self, ModelError> {
        Ok(Self {
            target: target.clone(),
            session: target.session()?,
        })
    }
}

impl Verifier for SessionVerifier {
    fn extend(&mut self, tokens: &[u32], wanted: usize) -> Result<Extension, ModelError> {
        let extension = self.session.extend(tokens)?;
        let last = extension
            .last_hidden
            .narrow(0, tokens.len() - wanted, wanted)?;
        Ok(Extension {
            features: extension.features,
            choices: choices(&self.target.head(&last.contiguous()?)?)?,
        })
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.session.truncate(len)
    }

    fn len(&self) -> usize {
        self.session.len()
    }
}

/// Many growing texts before a target.
#[derive(Debug)]
pub struct SessionBatch {
    target: Target,
    session: Option<BatchSession>,
}

impl SessionBatch {
    /// No texts yet, before `target`.
    pub fn new(target: &Target) -> Self {
        Self {
            target: target.clone(),
            session: None,
        }
    }

    fn extend(&mut self, news: &[&[u32]]) -> Result<Tensor, ModelError> {
        let session = self.session.as_mut().ok_or_else(not_begun)?;
        self.target.head(&session.extend(news)?.last()?)
    }
}

impl Batch for SessionBatch {
    fn start(&mut self, prompts: &[&[u32]]) -> Result<Tensor, ModelError> {
        self.session = Some(self.target.batch_session(prompts.len())?);
        self.extend(prompts)
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Tensor, ModelError> {
        let rows: Vec<&[u32]> = tokens.chunks(1).collect();
        self.extend(&rows)
    }

    fn keep(&mut self, rows: &[usize]) -> Result<(), ModelError> {
        self.session.as_mut().ok_or_else(not_begun)?.keep(rows)
    }
}

fn not_begun() -> ModelError {
    let problem = "no texts were begun; give prompts first".to_owned();
    ModelError::Batch { row: 0, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Recompute, RecomputeBatch};
    use crate::model::fixture::{models, row};

    fn close(a: &Tensor, b: &Tensor) -> bool {
        let error = (a - b).unwrap().abs().unwrap().flatten_all().unwrap();
        error.max(0).unwrap().to_scalar::<f32>().unwrap() < 1e-5
    }

    #[test]
    fn a_session_decides_as_reading_anew_does() -> Result<(), ModelError> {
        let (target, _) = models();
        let text = row(3, 30, 0).input_ids;
        let mut session = SessionVerifier::new(&target)?;
        let mut anew = Recompute::new(&target);
        // Pieces, and how much of each is forgotten again.
        let mut at = 0;
        for (piece, forgotten) in [(9, 0), (1, 0), (4, 3), (4, 4), (4, 0), (7, 2)] {
            let tokens = &text[at..at + piece];
            let (a, b) = (session.extend(tokens, piece)?, anew.extend(tokens, piece)?);
            assert!(close(&a.features, &b.features));
            let said = |e: &Extension| e.choices.iter().map(|c| c.token).collect::<Vec<_>>();
            assert_eq!(said(&a), said(&b));
            at += piece - forgotten;
            session.truncate(at)?;
            anew.truncate(at)?;
            assert_eq!((session.len(), anew.len()), (at, at));
        }
        Ok(())
    }

    #[test]
    fn a_batch_of_sessions_gives_the_logits_of_reading_anew() -> Result<(), ModelError> {
        let (target, _) = models();
        let (mut session, mut anew) = (SessionBatch::new(&target), RecomputeBatch::new(&target));
        let texts = [5, 9, 2].map(|tokens| row(tokens as u64, tokens, 0).input_ids);
        let prompts = texts.each_ref().map(|text| &text[..]);
        assert!(close(&session.start(&prompts)?, &anew.start(&prompts)?));
        assert!(close(&session.step(&[1, 2, 3])?, &anew.step(&[1, 2, 3])?));
        session.keep(&[2, 1])?;
        anew.keep(&[2, 1])?;
        assert!(close(&session.step(&[4, 5])?, &anew.step(&[4, 5])?));
        Ok(())
    }
}
