//! Kernels: CUDA C++ text compiled at run time for the device found, and cached on disk.

use super::{CudaError, Element, Gpu, Named, Ptr, Stream};
use cudarc::driver::{result, sys};
use cudarc::nvrtc;
use shared::record::Digest;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The text that every file of kernels begins with.
const PRELUDE: &str = include_str!("kernels/prelude.cuh");

/// A file of kernels.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name, for errors and for the cache.
    pub file: &'static str,
    /// Its text; the prelude is put before it.
    pub text: &'a str,
}

/// A compiled file of kernels on one GPU.
#[derive(Debug)]
pub struct Module {
    gpu: Arc<Gpu>,
    raw: sys::CUmodule,
    file: &'static str,
}

// SAFETY: a module is a handle that any thread of its context may use.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles `source` for the GPU, or takes what an earlier run compiled.
    ///
    /// # Errors
    /// No compiler, or a text that it refuses.
    pub fn load(gpu: &Arc<Gpu>, source: &Source<'_>) -> Result<Arc<Self>, CudaError> {
        gpu.bind()?;
        let arch = arch(gpu.capability());
        let cached = cache_file(source, &arch)?;
        let image = cached.as_deref().and_then(|path| std::fs::read(path).ok());
        if let Some(image) = image {
            // A damaged file is compiled anew.
            if let Ok(module) = Self::from_image(gpu, source, &image) {
                return Ok(module);
            }
        }
        let image = compile(source, &arch)?;
        if let Some(path) = cached {
            keep(&path, &image);
        }
        Self::from_image(gpu, source, &image)
    }

    fn from_image(
        gpu: &Arc<Gpu>,
        source: &Source<'_>,
        image: &[u8],
    ) -> Result<Arc<Self>, CudaError> {
        // SAFETY: the image is a whole file that the compiler made, and stays until the call returns.
        let raw = unsafe { result::module::load_data(image.as_ptr().cast()) }
            .named("cuModuleLoadData")?;
        Ok(Arc::new(Self {
            gpu: Arc::clone(gpu),
            raw,
            file: source.file,
        }))
    }

    /// The kernel `name`, declared `extern "C"`.
    pub fn kernel(self: &Arc<Self>, name: &'static str) -> Result<Kernel, CudaError> {
        let text =
            CString::new(name).map_err(|_| CudaError::Shape(format!("kernel name {name:?}")))?;
        // SAFETY: the module is loaded; the function lives as long as it, and the kernel holds it.
        let raw = unsafe { result::module::get_function(self.raw, text) };
        let raw = raw.map_err(|error| CudaError::Compile {
            file: self.file,
            arch: arch(self.gpu.capability()),
            log: format!("kernel {name} is not there: {error:?}"),
        })?;
        Ok(Kernel {
            module: Arc::clone(self),
            raw,
            name,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.gpu.bind();
        // SAFETY: every kernel holds its module, so none is left.
        let _ = unsafe { result::module::unload(self.raw) };
    }
}

/// A function that runs on the GPU.
#[derive(Debug, Clone)]
pub struct Kernel {
    module: Arc<Module>,
    raw: sys::CUfunction,
    name: &'static str,
}

// SAFETY: a function is a handle that any thread of its context may use.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Allows blocks with this much dynamic shared memory; needed above 48 KiB.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        self.module.gpu.bind()?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function belongs to a loaded module.
        unsafe { result::function::set_function_attribute(self.raw, attribute, bytes as i32) }
            .named("cuFuncSetAttribute(shared memory)")
    }

    /// A launch of `grid` blocks of `block` threads, still without arguments.
    pub fn launch(&self, grid: [usize; 3], block: usize) -> Launch<'_> {
        Launch {
            kernel: self,
            grid,
            block,
            shared: 0,
            arguments: Vec::with_capacity(16),
            starts: Vec::with_capacity(16),
        }
    }
}

/// A launch under construction.
#[derive(Debug)]
pub struct Launch<'a> {
    kernel: &'a Kernel,
    grid: [usize; 3],
    block: usize,
    shared: u32,
    /// Each argument's bytes, from the start of a word on.
    arguments: Vec<u64>,
    /// The first word of each argument.
    starts: Vec<usize>,
}

impl Launch<'_> {
    /// Dynamic shared memory of a block. (bytes)
    #[must_use]
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    fn push(&mut self, words: &[u64]) {
        self.starts.push(self.arguments.len());
        self.arguments.extend_from_slice(words);
    }

    /// A structure of whole words, by value.
    #[must_use]
    pub fn words(mut self, words: &[u64]) -> Self {
        self.push(words);
        self
    }

    /// An address.
    #[must_use]
    pub fn ptr<T: Element>(mut self, ptr: Ptr<T>) -> Self {
        self.push(&[ptr.address()]);
        self
    }

    /// An address that the kernel takes as "nothing".
    #[must_use]
    pub fn null(mut self) -> Self {
        self.push(&[0]);
        self
    }

    /// An `int` or `unsigned`.
    ///
    /// # Panics
    /// When it does not fit 31 bits: kernels index with `int`.
    #[must_use]
    pub fn int(mut self, value: usize) -> Self {
        let value = i32::try_from(value).expect("a kernel's int has 31 bits");
        self.push(&[u64::from(value as u32)]);
        self
    }

    /// A `long long` or `unsigned long long`.
    #[must_use]
    pub fn long(mut self, value: u64) -> Self {
        self.push(&[value]);
        self
    }

    /// A `float`.
    #[must_use]
    pub fn float(mut self, value: f32) -> Self {
        self.push(&[u64::from(value.to_bits())]);
        self
    }

    /// Puts the launch into the stream. A grid without blocks is nothing to do.
    ///
    /// # Safety
    /// The arguments are those that the kernel declares, in its order and with its kinds, and everything that it reads or writes lies
    /// in live buffers of the stream's device until the launch is done.
    pub unsafe fn on(mut self, stream: &Stream) -> Result<(), CudaError> {
        if self.grid.contains(&0) {
            return Ok(());
        }
        let [x, y, z] = self.grid.map(u32::try_from);
        let (Ok(x), Ok(y), Ok(z)) = (x, y, z) else {
            return Err(CudaError::Shape(format!(
                "kernel {}: a grid of {:?} blocks",
                self.kernel.name, self.grid
            )));
        };
        stream.gpu().bind()?;
        // Little-endian hosts alone have CUDA: the argument's bytes begin at the word's address.
        let words = self.arguments.as_mut_ptr();
        // SAFETY: every start lies inside the list.
        let at = |&start: &usize| unsafe { words.add(start) }.cast::<c_void>();
        let mut pointers: Vec<*mut c_void> = self.starts.iter().map(at).collect();
        let block = (self.block as u32, 1, 1);
        // SAFETY: handles are alive; the rest is the caller's promise.
        unsafe {
            result::launch_kernel(
                self.kernel.raw,
                (x, y, z),
                block,
                self.shared,
                stream.raw(),
                &mut pointers,
            )
        }
        .map_err(|error| CudaError::Call {
            call: self.kernel.name,
            code: format!("{error:?}"),
        })
    }
}

/// The architecture to compile for: the device's own, with its architecture-specific instructions where it has some.
fn arch((major, minor): (u32, u32)) -> String {
    let specific = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{specific}")
}

/// The compiler's version, major and minor.
///
/// # Errors
/// No compiler is installed.
pub fn compiler_version() -> Result<(i32, i32), CudaError> {
    // SAFETY: loading the compiler's library runs its initialisers.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(CudaError::NoLibrary {
            library: "libnvrtc",
            version: "13",
            package: "nvidia-cuda-nvrtc",
        });
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there and the results have places.
    unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) }
        .result()
        .named("nvrtcVersion")?;
    Ok((major, minor))
}

/// Compiles a file of kernels for an architecture such as `sm_90a`; needs no GPU. Gives machine code.
///
/// # Errors
/// No compiler, or a text that it refuses: the error holds what it says.
pub fn compile(source: &Source<'_>, arch: &str) -> Result<Vec<u8>, CudaError> {
    compiler_version()?;
    let refused = |log: String| CudaError::Compile {
        file: source.file,
        arch: arch.to_owned(),
        log,
    };
    let text = CString::new(format!("{PRELUDE}\n#line 1\n{}", source.text))
        .map_err(|_| refused("the text holds a zero byte".to_owned()))?;
    let name =
        CString::new(source.file).map_err(|_| refused("its name holds a zero byte".to_owned()))?;
    let program = nvrtc::result::create_program(&text, Some(&name)).named("nvrtcCreateProgram")?;
    let options = [
        format!("--gpu-architecture={arch}"),
        "--std=c++17".to_owned(),
        "-default-device".to_owned(),
        "--extra-device-vectorization".to_owned(),
    ];
    // SAFETY: the program was just made and is destroyed below, once.
    let outcome = unsafe { nvrtc::result::compile_program(program, &options) };
    let image = match outcome {
        // SAFETY: as above.
        Ok(()) => unsafe { machine_code(program) },
        Err(_) => Err(refused(unsafe { log(program) })),
    };
    // SAFETY: as above.
    let _ = unsafe { nvrtc::result::destroy_program(program) };
    image
}

/// # Safety
/// `program` is alive and was compiled.
unsafe fn machine_code(program: nvrtc::sys::nvrtcProgram) -> Result<Vec<u8>, CudaError> {
    let mut size = 0;
    // SAFETY: the result has a place.
    unsafe { nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size) }
        .result()
        .named("nvrtcGetCUBINSize")?;
    let mut image = vec![0u8; size];
    // SAFETY: the compiler writes exactly `size` bytes.
    unsafe { nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()) }
        .result()
        .named("nvrtcGetCUBIN")?;
    Ok(image)
}

/// # Safety
/// `program` is alive.
unsafe fn log(program: nvrtc::sys::nvrtcProgram) -> String {
    // SAFETY: the caller's promise.
    let text = unsafe { nvrtc::result::get_program_log(program) }.unwrap_or_default();
    let bytes: Vec<u8> = text
        .into_iter()
        .map(|c| c as u8)
        .filter(|b| *b != 0)
        .collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Where the compiled file is kept; `None` where there is no place for caches.
fn cache_file(source: &Source<'_>, arch: &str) -> Result<Option<PathBuf>, CudaError> {
    let (major, minor) = compiler_version()?;
    let Some(folder) = cache_folder() else {
        return Ok(None);
    };
    let mut digest = Digest::default();
    digest.add(PRELUDE.as_bytes());
    digest.add(source.text.as_bytes());
    let (file, digest) = (source.file, digest.finish());
    Ok(Some(folder.join(format!(
        "{file}-{arch}-nvrtc{major}.{minor}-{digest:016x}.cubin"
    ))))
}

/// `DFLASH_CACHE_DIR`, or the user's folder for caches.
fn cache_folder() -> Option<PathBuf> {
    let named = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    named("DFLASH_CACHE_DIR")
        .map(PathBuf::from)
        .or_else(|| named("XDG_CACHE_HOME").map(|base| Path::new(&base).join("dflash")))
        .or_else(|| named("HOME").map(|home| Path::new(&home).join(".cache/dflash")))
        .map(|folder| folder.join("kernels"))
}

/// Writes the file whole or not at all. A cache that cannot be written costs time at the next start and nothing else.
fn keep(path: &Path, image: &[u8]) {
    let Some(folder) = path.parent() else { return };
    let part = path.with_extension(format!("part{}", std::process::id()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&part, image))
        .and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hopper_and_later_get_their_own_instructions() {
        assert_eq!(arch((8, 0)), "sm_80");
        assert_eq!(arch((9, 0)), "sm_90a");
        assert_eq!(arch((10, 0)), "sm_100a");
    }
}
