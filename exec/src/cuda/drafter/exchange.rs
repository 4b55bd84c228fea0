//! Weights, moments and gradients in and out of a drafter.

use candle_core::{Device, Tensor};

use super::{CudaDrafter, CudaError, DrafterError};
use crate::cuda::Ptr;
use crate::model::Tensors;
use crate::train::TrainError;

impl CudaDrafter {
    /// Copies weights, named as in released files, to the masters and rounds them for products.
    ///
    /// # Errors
    /// Weights missing, unknown or of other shapes; nothing has changed then.
    pub fn set_weights(&mut self, weights: &Tensors) -> Result<(), DrafterError> {
        self.check_names("weights", weights)?;
        self.fill(self.memory.state.weights.ptr(), weights)?;
        Ok(self.ops.round(&self.vectors())?)
    }

    /// The master weights by their released names (f32).
    ///
    /// # Errors
    /// Failures of the device.
    pub fn weights(&self) -> Result<Tensors, DrafterError> {
        self.read(self.memory.state.weights.ptr())
    }

    /// The gradients of the step under way by weight name (f32): sums, not divided by anything.
    ///
    /// # Errors
    /// Failures of the device.
    pub fn gradients(&self) -> Result<Tensors, DrafterError> {
        let gradients = self.memory.state.gradients.ptr();
        if !self.sums.holds_gradients {
            self.stream.zero(gradients)?;
        }
        self.read(gradients)
    }

    /// The whole state as named tensors, as [`crate::train::Optimizer::export`] gives it; the step count travels apart, see [`CudaDrafter::step`].
    ///
    /// # Errors
    /// Failures of the device.
    pub fn export(&self) -> Result<Tensors, DrafterError> {
        let state = &self.memory.state;
        let mut all = Tensors::new();
        for (part, vector) in [
            ("weight", &state.weights),
            ("first_moment", &state.first_moments),
            ("second_moment", &state.second_moments),
        ] {
            let tensors = self.read(vector.ptr())?;
            all.extend(
                tensors
                    .into_iter()
                    .map(|(name, t)| (format!("{part}.{name}"), t)),
            );
        }
        Ok(all)
    }

    /// Takes back what [`CudaDrafter::export`] or the CPU's optimizer gave, and the step count. What the step under way held is dropped.
    ///
    /// # Errors
    /// Tensors missing, unknown or of other shapes; the state stays as it was.
    pub fn import(&mut self, tensors: &Tensors, step: u64) -> Result<(), DrafterError> {
        let part = |part: &str| -> Tensors {
            let strip = |(name, tensor): (&String, &Tensor)| {
                let name = name.strip_prefix(part)?.strip_prefix('.')?;
                Some((name.to_owned(), tensor.clone()))
            };
            tensors.iter().filter_map(strip).collect()
        };
        let parts = [part("weight"), part("first_moment"), part("second_moment")];
        for tensors in &parts {
            self.check_names("optimizer state", tensors)?;
        }
        if tensors.len() != parts.iter().map(Tensors::len).sum::<usize>() {
            let problem = "has an unknown name".to_owned();
            return Err(mismatch("optimizer state", "(any)", problem));
        }
        let [weights, first, second] = parts;
        let state = &self.memory.state;
        let (first_to, second_to) = (state.first_moments.ptr(), state.second_moments.ptr());
        self.fill(first_to, &first)?;
        self.fill(second_to, &second)?;
        self.set_weights(&weights)?;
        self.step = step;
        Ok(self.clear_sums()?)
    }

    /// Adds what another drafter of the same device accumulated, and clears the other's step. In a fixed order of calls the sum is
    /// reproducible.
    ///
    /// # Errors
    /// Another geometry or device.
    pub fn add_from(&mut self, other: &mut Self) -> Result<(), DrafterError> {
        self.check_twin(other)?;
        self.stream.wait(&other.stream.record()?)?;
        let (mine, others) = (&self.memory.state, &other.memory.state);
        let loss = [mine.loss.ptr(), others.loss.ptr()];
        let counts = [mine.counts.ptr(), others.counts.ptr()];
        if other.sums.holds_gradients {
            if !self.sums.holds_gradients {
                self.stream.zero(mine.gradients.ptr())?;
            }
            self.ops
                .add(mine.gradients.ptr(), others.gradients.ptr(), loss, counts)?;
        }
        self.sums.add(&other.sums);
        self.sums.holds_gradients |= other.sums.holds_gradients;
        other.stream.wait(&self.stream.record()?)?;
        Ok(other.clear_sums()?)
    }

    /// Takes over the weights of another drafter of the same device, which has just applied a step for both.
    ///
    /// # Errors
    /// Another geometry or device.
    pub fn take_weights(&mut self, other: &Self) -> Result<(), DrafterError> {
        self.check_twin(other)?;
        self.stream.wait(&other.stream.record()?)?;
        let (mine, others) = (&self.memory.state, &other.memory.state);
        self.stream.copy(others.weights.ptr(), mine.weights.ptr())?;
        self.stream.copy(others.narrow.ptr(), mine.narrow.ptr())?;
        self.step = other.step;
        Ok(other.stream.wait(&self.stream.record()?)?)
    }

    fn check_twin(&self, other: &Self) -> Result<(), CudaError> {
        let (here, there) = (self.stream.gpu().ordinal(), other.stream.gpu().ordinal());
        self.check_shape(other)?;
        match here == there {
            true => Ok(()),
            false => Err(CudaError::Shape(format!(
                "drafters on GPU {here} and GPU {there} do not share memory"
            ))),
        }
    }

    fn check_names(&self, what: &'static str, tensors: &Tensors) -> Result<(), DrafterError> {
        for (name, (_, shape)) in &self.layout.tensors {
            match tensors.get(name) {
                None => return Err(mismatch(what, name, "is missing".to_owned())),
                Some(tensor) if tensor.dims() != shape => {
                    let problem = format!("is {:?}, expected {shape:?}", tensor.dims());
                    return Err(mismatch(what, name, problem));
                }
                Some(_) => {}
            }
        }
        match tensors
            .keys()
            .find(|name| !self.layout.tensors.contains_key(*name))
        {
            Some(name) => Err(mismatch(what, name, "belongs to no weight".to_owned())),
            None => Ok(()),
        }
    }

    fn fill(&self, vector: Ptr<f32>, tensors: &Tensors) -> Result<(), DrafterError> {
        for (name, (range, _)) in &self.layout.tensors {
            let wide = tensors[name]
                .to_dtype(candle_core::DType::F32)
                .map_err(TrainError::from)?;
            let values: Vec<f32> = wide
                .flatten_all()
                .and_then(|t| t.to_vec1())
                .map_err(TrainError::from)?;
            self.stream.upload(&values, vector.at(range.clone()))?;
        }
        Ok(())
    }

    fn read(&self, vector: Ptr<f32>) -> Result<Tensors, DrafterError> {
        let mut tensors = Tensors::new();
        for (name, (range, shape)) in &self.layout.tensors {
            let values = self.stream.download(vector.at(range.clone()))?;
            let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)
                .map_err(TrainError::from)?;
            tensors.insert(name.clone(), tensor);
        }
        Ok(tensors)
    }
}

fn mismatch(what: &'static str, name: &str, problem: String) -> DrafterError {
    let name = name.to_owned();
    TrainError::Mismatch {
        what,
        name,
        problem,
    }
    .into()
}
