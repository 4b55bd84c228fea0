//! cuDNN's descriptors: objects of one kind with typed attributes, used once they are finalised.

use crate::cuda::CudaError;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as DataType,
};
use std::ffi::CStr;

/// One descriptor; destroyed when dropped.
#[derive(Debug)]
pub(super) struct Descriptor {
    raw: sys::cudnnBackendDescriptor_t,
}

impl Descriptor {
    pub(super) fn new(kind: Kind) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the result has a place.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut raw) };
        check(status, "cudnnBackendCreateDescriptor")?;
        Ok(Self { raw })
    }

    pub(super) fn raw(&self) -> sys::cudnnBackendDescriptor_t {
        self.raw
    }

    /// Sets an attribute to a list of values; each attribute has one type, which the library checks together with the size.
    pub(super) fn set<T: Value>(&mut self, name: Name, values: &[T]) -> Result<(), CudaError> {
        // SAFETY: the list holds as many values of the attribute's type as is said.
        let status = unsafe {
            sys::cudnnBackendSetAttribute(
                self.raw,
                name,
                T::TYPE,
                values.len() as i64,
                values.as_ptr().cast(),
            )
        };
        check(status, "cudnnBackendSetAttribute")
    }

    /// Sets an attribute to other descriptors, which the library copies or refers to: keep them as long as this one.
    pub(super) fn refer(&mut self, name: Name, to: &[&Self]) -> Result<(), CudaError> {
        let raw: Vec<Pointer> = to.iter().map(|d| Pointer(d.raw)).collect();
        self.set(name, &raw)
    }

    pub(super) fn finalise(self) -> Result<Self, CudaError> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { sys::cudnnBackendFinalize(self.raw) };
        check(status, "cudnnBackendFinalize")?;
        Ok(self)
    }

    /// An attribute that is one 64-bit number.
    pub(super) fn number(&self, name: Name) -> Result<i64, CudaError> {
        let (mut value, mut count) = (0i64, 0i64);
        // SAFETY: there is room for the one number asked for.
        let status = unsafe {
            sys::cudnnBackendGetAttribute(
                self.raw,
                name,
                Type::CUDNN_TYPE_INT64,
                1,
                &raw mut count,
                (&raw mut value).cast(),
            )
        };
        check(status, "cudnnBackendGetAttribute")?;
        Ok(value)
    }

    /// Fills `into` from an attribute that is a list of descriptors, and says how many there were.
    pub(super) fn list(&self, name: Name, into: &[Self]) -> Result<usize, CudaError> {
        let mut raw: Vec<_> = into.iter().map(|d| d.raw).collect();
        let mut count = 0i64;
        // SAFETY: there is room for as many descriptors as are asked for; the library fills those given.
        let status = unsafe {
            sys::cudnnBackendGetAttribute(
                self.raw,
                name,
                Type::CUDNN_TYPE_BACKEND_DESCRIPTOR,
                raw.len() as i64,
                &raw mut count,
                raw.as_mut_ptr().cast(),
            )
        };
        check(status, "cudnnBackendGetAttribute")?;
        Ok(into.len().min(count.max(0) as usize))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once. Nobody is left to hear of an error.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.raw) };
    }
}

/// A value that an attribute can have.
pub(super) trait Value {
    const TYPE: Type;
}

/// A handle, a descriptor or an address.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pointer(pub(super) *mut std::ffi::c_void);

/// The library's handle.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Handle(pub(super) sys::cudnnHandle_t);

/// An address of data.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Address(pub(super) u64);

impl Value for Pointer {
    const TYPE: Type = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
}
impl Value for Handle {
    const TYPE: Type = Type::CUDNN_TYPE_HANDLE;
}
impl Value for Address {
    const TYPE: Type = Type::CUDNN_TYPE_VOID_PTR;
}
impl Value for i64 {
    const TYPE: Type = Type::CUDNN_TYPE_INT64;
}
impl Value for bool {
    const TYPE: Type = Type::CUDNN_TYPE_BOOLEAN;
}
impl Value for DataType {
    const TYPE: Type = Type::CUDNN_TYPE_DATA_TYPE;
}
impl Value for sys::cudnnPointwiseMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_POINTWISE_MODE;
}
impl Value for sys::cudnnReduceTensorOp_t {
    const TYPE: Type = Type::CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
}
impl Value for sys::cudnnBackendHeurMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_HEUR_MODE;
}

/// The library's last message behind a status that is not success.
pub(super) fn check(status: sys::cudnnStatus_t, call: &'static str) -> Result<(), CudaError> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0u8; 512];
    // SAFETY: the library writes at most as many bytes as is said, with a zero at the end.
    unsafe { sys::cudnnGetLastErrorString(text.as_mut_ptr().cast(), text.len()) };
    let message = CStr::from_bytes_until_nul(&text).map_or("", |t| t.to_str().unwrap_or(""));
    Err(CudaError::Call {
        call,
        code: format!("{status:?} {message}").trim().to_owned(),
    })
}
