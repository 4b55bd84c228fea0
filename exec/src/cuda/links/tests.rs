use super::*;
use std::cell::RefCell;

/// A box that does as it is told.
#[derive(Default)]
struct Fake {
    count: usize,
    unreachable: Vec<(usize, usize)>,
    refuses: Vec<(usize, usize)>,
    /// Pair, the side that drives the copy, and the place of the number that comes out wrong.
    flips: Vec<(usize, usize, Side, usize)>,
    /// Delivers nothing: what was there before stays.
    loses: Vec<(usize, usize)>,
    sent: RefCell<Vec<(usize, usize, Side)>>,
}

impl Wiring for Fake {
    fn count(&self) -> usize {
        self.count
    }

    fn can_reach(&self, from: usize, to: usize) -> Result<bool, CudaError> {
        Ok(!self.unreachable.contains(&(from, to)))
    }

    fn reach(&self, from: usize, to: usize) -> Result<(), CudaError> {
        match self.refuses.contains(&(from, to)) {
            true => Err(CudaError::Call {
                call: "cuCtxEnablePeerAccess",
                code: "CUDA_ERROR_TOO_MANY_PEERS".to_owned(),
            }),
            false => Ok(()),
        }
    }

    fn send(
        &self,
        from: usize,
        to: usize,
        side: Side,
        sent: &[u32],
    ) -> Result<Vec<u32>, CudaError> {
        self.sent.borrow_mut().push((from, to, side));
        if self.loses.contains(&(from, to)) {
            return Ok(vec![0; sent.len()]);
        }
        let mut arrived = sent.to_vec();
        for &(a, b, with, at) in &self.flips {
            if (a, b, with) == (from, to, side) {
                arrived[at] ^= 1;
            }
        }
        Ok(arrived)
    }
}

#[test]
fn a_sound_box_is_direct_everywhere_and_every_direction_was_probed_from_both_sides() {
    let wiring = Fake {
        count: 3,
        ..Fake::default()
    };
    let links = Links::survey(&wiring, 64);
    let direct = (0..9).filter(|at| links.is_direct(at / 3, at % 3)).count();
    assert_eq!((direct, links.complaints(&[0, 1, 2])), (9, Vec::new()));
    let sent = wiring.sent.borrow();
    for pair in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        for side in [Side::Source, Side::Target] {
            let with = |s: &&(usize, usize, Side)| ((s.0, s.1), s.2) == (pair, side);
            assert_eq!(sent.iter().filter(with).count(), 2, "{pair:?} {side:?}");
        }
    }
}

#[test]
fn one_wrong_bit_in_one_direction_sends_that_direction_through_the_host() {
    for side in [Side::Source, Side::Target] {
        let wiring = Fake {
            count: 2,
            flips: vec![(1, 0, side, 17)],
            ..Fake::default()
        };
        let links = Links::survey(&wiring, 64);
        assert!(links.is_direct(0, 1) && !links.is_direct(1, 0));
        assert_eq!(
            links.complaints(&[4, 6]),
            [
                "GPU 6 to GPU 4: a direct copy came out wrong (1 of 64 numbers, the first at 17): check the machine's IOMMU and ACS settings; copies go through pinned host memory instead"
            ]
        );
    }
}

#[test]
fn a_copy_that_delivers_nothing_is_found() {
    let wiring = Fake {
        count: 2,
        loses: vec![(0, 1)],
        ..Fake::default()
    };
    let links = Links::survey(&wiring, 64);
    assert!(matches!(
        links.standing(0, 1),
        Some(Standing::Corrupt { sent: 64, .. })
    ));
    assert!(links.is_direct(1, 0));
}

#[test]
fn a_pair_that_cannot_reach_back_is_not_used_and_not_probed() {
    let wiring = Fake {
        count: 2,
        unreachable: vec![(1, 0)],
        ..Fake::default()
    };
    let links = Links::survey(&wiring, 64);
    assert!(!links.is_direct(0, 1) && !links.is_direct(1, 0));
    assert!(wiring.sent.borrow().is_empty());
    assert_eq!(links.complaints(&[0, 1]).len(), 2);
}

#[test]
fn a_driver_that_refuses_is_quoted() {
    let wiring = Fake {
        count: 2,
        refuses: vec![(0, 1)],
        ..Fake::default()
    };
    let links = Links::survey(&wiring, 64);
    let complaint = &links.complaints(&[0, 1])[0];
    assert!(
        complaint
            .starts_with("GPU 0 to GPU 1: cuCtxEnablePeerAccess failed: CUDA_ERROR_TOO_MANY_PEERS"),
        "{complaint}"
    );
}
