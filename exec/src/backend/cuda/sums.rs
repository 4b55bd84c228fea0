//! An optimizer step over drafters wherever they are: their gradients are summed in f32, the first applies the step, the others take its
//! weights.
//!
//! Drafters of one GPU add in its memory, in their order; then the GPUs' sums are added, in the order in which the drafters name the GPUs.
//! Across GPUs NCCL does it where no order can be told from another, or where the policy asks for none; else, and where NCCL is not to be
//! had, sums are copied and added one after the other. So under a fixed assignment the same placing gives the same bits.

use super::lock;
use super::placing::Placing;
use crate::cuda::drafter::{CudaDrafter, DrafterError, Landing};
use crate::cuda::links::Links;
use crate::cuda::nccl::Comms;
use crate::cuda::{CudaError, Gpu, Stream, Way};
use crate::train::{StepReport, TrainError};
use shared::policy::{Assignment, Barrier, Policy};
use std::sync::{Arc, Mutex};

/// How the GPUs' sums are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Across {
    /// All drafters are on one GPU, or each is on its own.
    Nothing,
    /// By NCCL.
    Nccl,
    /// By copies, in order.
    Copies,
}

impl Across {
    /// What the policy lets be, if NCCL is there.
    pub(super) fn of(policy: &Policy, placing: &Placing) -> Self {
        let gpus = placing.drafter_gpus().len();
        match (policy.barrier, policy.assignment) {
            (Barrier::None, _) => Self::Nothing,
            (Barrier::All, _) if gpus < 2 => Self::Nothing,
            // Two sums give the same bits in either order.
            (Barrier::All, Assignment::Fixed) if gpus > 2 => Self::Copies,
            (Barrier::All, _) => Self::Nccl,
        }
    }
}

/// What steps over several GPUs work with, and what the user should hear of it.
#[derive(Debug)]
pub(super) struct Sums {
    /// The drafters' GPUs, in their order.
    gpus: Vec<usize>,
    place_of: Vec<usize>,
    tools: Mutex<Tools>,
}

#[derive(Debug)]
struct Tools {
    comms: Option<Comms>,
    landing: Option<Landing>,
    /// To the first GPU and back, for each other one.
    ways: Vec<[Way; 2]>,
}

impl Sums {
    /// Takes what is needed; `note` hears what the user should know.
    pub(super) fn new(
        policy: &Policy,
        placing: &Placing,
        gpus: &[Arc<Gpu>],
        links: Option<&Links>,
        note: &mut dyn FnMut(String),
    ) -> Result<Self, CudaError> {
        let used = placing.drafter_gpus();
        let across = Across::of(policy, placing);
        let mut tools = Tools {
            comms: None,
            landing: None,
            ways: Vec::new(),
        };
        if across != Across::Nothing {
            let way = |from: usize, to: usize| match links {
                Some(links) if !links.is_direct(from, to) => Way::pinned(&gpus[from]),
                _ => Ok(Way::Direct),
            };
            let first = used[0];
            tools.landing = Some(Landing::new(&gpus[first])?);
            for &other in &used[1..] {
                tools.ways.push([way(other, first)?, way(first, other)?]);
            }
        }
        let devices: Vec<Arc<Gpu>> = used.iter().map(|&at| Arc::clone(&gpus[at])).collect();
        if across == Across::Nccl {
            match Comms::new(&devices) {
                Ok(comms) => {
                    note(said(&comms, &devices));
                    tools.comms = Some(comms);
                }
                Err(error) => note(format!(
                    "{error}; gradients are summed over GPUs by copies instead"
                )),
            }
        } else if across == Across::Copies {
            note(format!(
                "gradients are summed over {} GPUs by copies, in the order of the drafters: policy.assignment = \"fixed\" promises the same bits, and NCCL promises no order",
                used.len()
            ));
        }
        Ok(Self {
            gpus: used,
            place_of: placing.drafters.clone(),
            tools: Mutex::new(tools),
        })
    }

    /// Sums what `drafters` accumulated, applies the step at the first, and gives its weights to all. `members` are their numbers.
    ///
    /// # Errors
    /// As [`CudaDrafter::apply`]; failures of the devices.
    pub(super) fn step(
        &self,
        members: &[usize],
        drafters: &mut [CudaDrafter],
    ) -> Result<StepReport, DrafterError> {
        let places: Vec<usize> = members.iter().map(|&at| self.place_of[at]).collect();
        let groups = by_place(&places);
        for group in &groups {
            for &other in &group[1..] {
                let [leader, other] = two(drafters, group[0], other)?;
                leader.add_from(other)?;
            }
        }
        let leaders: Vec<usize> = groups.iter().map(|group| group[0]).collect();
        let Some((&first, others)) = leaders.split_first() else {
            return Err(TrainError::NothingSupervised { step: 0 }.into());
        };
        let mut tools = lock(&self.tools);
        // NCCL takes part on every GPU it was made for, so a step without one of them goes by copies.
        let is_whole = leaders
            .iter()
            .map(|&at| places[at])
            .eq(self.gpus.iter().copied());
        match &mut tools.comms {
            Some(comms) if is_whole => add_by_nccl(comms, drafters, &leaders)?,
            _ => {
                for &other in others {
                    let at = self.number_of(places[other])?;
                    let Tools { landing, ways, .. } = &mut *tools;
                    let landing = landing.as_ref().ok_or_else(lacking)?;
                    let [leader, other] = two(drafters, first, other)?;
                    leader.add_from_device(other, &mut ways[at][0], landing)?;
                }
            }
        }
        let report = drafters[first].apply()?;
        match &mut tools.comms {
            Some(comms) if is_whole => spread_by_nccl(comms, drafters, &leaders)?,
            _ => {
                for &other in others {
                    let at = self.number_of(places[other])?;
                    let [leader, other] = two(drafters, first, other)?;
                    other.take_weights_from_device(leader, &mut tools.ways[at][1])?;
                }
            }
        }
        drop(tools);
        for group in &groups {
            for &other in &group[1..] {
                let [leader, other] = two(drafters, group[0], other)?;
                other.take_weights(leader)?;
            }
        }
        Ok(report)
    }

    /// Which pair of ways leads to a GPU that is not the first.
    fn number_of(&self, place: usize) -> Result<usize, CudaError> {
        let at = self.gpus.iter().position(|&gpu| gpu == place);
        at.and_then(|at| at.checked_sub(1)).ok_or_else(lacking)
    }
}

/// A step over several GPUs in a run that foresaw none: a mistake of this program.
fn lacking() -> CudaError {
    CudaError::Shape("an optimizer step over GPUs that no way was made between".to_owned())
}

fn said(comms: &Comms, gpus: &[Arc<Gpu>]) -> String {
    let version = comms.version().unwrap_or_default();
    let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
    let names: Vec<String> = gpus.iter().map(|gpu| gpu.ordinal().to_string()).collect();
    format!(
        "gradients are summed over GPUs {} by NCCL {major}.{minor}.{patch}",
        names.join(", ")
    )
}

fn add_by_nccl(
    comms: &mut Comms,
    drafters: &mut [CudaDrafter],
    leaders: &[usize],
) -> Result<(), DrafterError> {
    let vectors = leaders
        .iter()
        .map(|&at| drafters[at].step_vectors())
        .collect::<Result<Vec<_>, _>>()?;
    let streams: Vec<Stream> = leaders
        .iter()
        .map(|&at| drafters[at].stream().clone())
        .collect();
    let gradients: Vec<_> = streams
        .iter()
        .zip(&vectors)
        .map(|(s, v)| (s, v.gradients))
        .collect();
    comms.sum_to_first(&gradients)?;
    let losses: Vec<_> = streams
        .iter()
        .zip(&vectors)
        .map(|(s, v)| (s, v.loss))
        .collect();
    comms.sum_to_first(&losses)?;
    let counts: Vec<_> = streams
        .iter()
        .zip(&vectors)
        .map(|(s, v)| (s, v.counts))
        .collect();
    comms.sum_to_first(&counts)?;
    for &other in &leaders[1..] {
        let [leader, other] = two(drafters, leaders[0], other)?;
        leader.merge(other)?;
    }
    Ok(())
}

fn spread_by_nccl(
    comms: &mut Comms,
    drafters: &mut [CudaDrafter],
    leaders: &[usize],
) -> Result<(), DrafterError> {
    let weights: Vec<_> = leaders
        .iter()
        .map(|&at| (drafters[at].stream(), drafters[at].weight_vector()))
        .collect();
    comms.spread_first(&weights)?;
    for &other in &leaders[1..] {
        let [leader, other] = two(drafters, leaders[0], other)?;
        other.weights_arrived(leader)?;
    }
    Ok(())
}

/// Members by place, places in order of first appearance; in a group the members' own order.
fn by_place(places: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (member, &place) in places.iter().enumerate() {
        match groups.iter_mut().find(|(at, _)| *at == place) {
            Some((_, group)) => group.push(member),
            None => groups.push((place, vec![member])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Two different ones of a list.
fn two<T>(list: &mut [T], a: usize, b: usize) -> Result<[&mut T; 2], CudaError> {
    list.get_disjoint_mut([a, b])
        .map_err(|_| CudaError::Shape(format!("drafters {a} and {b} are not two of a step")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::policy::{Transport, preset};

    fn across(drafters: u16, gpus: usize, assignment: Assignment, barrier: Barrier) -> Across {
        let policy = Policy {
            targets: 1,
            drafters,
            transport: Transport::P2p,
            assignment,
            barrier,
            ..preset("composed").unwrap()
        };
        Across::of(&policy, &Placing::spread(&policy, gpus))
    }

    #[test]
    fn nccl_adds_where_no_order_shows_or_none_is_promised() {
        use Assignment::{Fixed, Shared};
        assert_eq!(across(2, 1, Fixed, Barrier::All), Across::Nothing);
        assert_eq!(across(2, 2, Fixed, Barrier::All), Across::Nothing);
        assert_eq!(across(2, 3, Fixed, Barrier::All), Across::Nccl);
        assert_eq!(across(3, 3, Fixed, Barrier::All), Across::Nccl);
        assert_eq!(across(3, 4, Fixed, Barrier::All), Across::Copies);
        assert_eq!(across(3, 4, Shared, Barrier::All), Across::Nccl);
        assert_eq!(across(3, 4, Shared, Barrier::None), Across::Nothing);
    }

    #[test]
    fn members_of_one_gpu_stay_together_and_in_order() {
        assert_eq!(by_place(&[2, 2, 1, 2, 1]), [vec![0, 1, 3], vec![2, 4]]);
        assert_eq!(by_place(&[]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn two_of_a_list_are_different() {
        let mut list = [1, 2, 3];
        let [a, b] = two(&mut list, 2, 0).unwrap();
        std::mem::swap(a, b);
        assert_eq!(list, [3, 2, 1]);
        assert!(two(&mut list, 1, 1).is_err());
        assert!(two(&mut list, 0, 3).is_err());
    }
}
