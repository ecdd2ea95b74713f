//! What a kernel is: its name, its image, its PTX.

use crate::driver::{self, Handle, OK};
use crate::image::{Held, Loaded};
use heist_fatbin::{Image, Images};
use heist_ptx::arch::Arch;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};

/// A kernel as the driver knows it.
pub(crate) struct Kernel {
    /// Its symbol; empty where the driver does not tell.
    pub(crate) name: String,
    pub(crate) owner: Option<Owner>,
}

/// What a kernel is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Module(Handle),
    Library(Handle),
}

impl Kernel {
    /// The kernel behind what a launch names: a function of a module, or a kernel of a library.
    pub(crate) fn of(function: Handle, images: &HashMap<usize, Loaded>) -> Kernel {
        let (mut name, mut owner) = (std::ptr::null::<c_char>(), std::ptr::null_mut());
        if driver::cuKernelGetName(&raw mut name, function) == OK {
            let known = driver::cuKernelGetLibrary(&raw mut owner, function) == OK;
            return Kernel {
                name: text(name),
                owner: known.then_some(Owner::Library(owner)),
            };
        }
        let name = match driver::cuFuncGetName(&raw mut name, function) {
            OK => text(name),
            _ => String::new(),
        };
        let owner = match driver::cuFuncGetModule(&raw mut owner, function) {
            OK => Some(library_of(owner, images).map_or(Owner::Module(owner), Owner::Library)),
            _ => None,
        };
        Kernel { name, owner }
    }

    /// The image that it was loaded from.
    fn image<'i>(&self, images: &'i HashMap<usize, Loaded>) -> Option<&'i Loaded> {
        let (Owner::Module(handle) | Owner::Library(handle)) = self.owner?;
        images.get(&(handle as usize))
    }

    /// Its PTX for a device, and where that was found.
    ///
    /// # Errors
    /// In a sentence, why there is none, and what to do.
    pub(crate) fn ptx(
        &self,
        images: &HashMap<usize, Loaded>,
        here: Arch,
        given: Option<&Path>,
    ) -> Result<(String, String), String> {
        if let Some(path) = given {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| format!("can't read {}: {error}", path.display()))?;
            return Ok((text, path.display().to_string()));
        }
        let lacks = "the driver was given its code in a way that is not seen: say where its PTX is with --ptx";
        let loaded = self.image(images).ok_or(lacks)?;
        let (image, from) = match &loaded.held {
            // SAFETY: it is in the image of a library or program that is loaded.
            Held::Wrapper(at) => (
                unsafe { Image::at(*at as *const _) },
                "the program's own image",
            ),
            Held::Copied(image) => (
                Some(image.clone()),
                "the text that the program gave to the driver",
            ),
            Held::File(path) => (
                std::fs::read(path).ok().map(|file| Image::of(&file)),
                "a file of the program's",
            ),
            Held::Unreadable => (None, ""),
        };
        let image = image.ok_or(lacks)?;
        let entry = format!(".entry {}", self.name);
        let has = |text: &String| {
            let mut places = text.match_indices(&entry);
            let ends = |at: usize| text[at..].starts_with(|c: char| c == '(' || c.is_whitespace());
            places.any(|(at, found)| ends(at + found.len()))
        };
        let mut images = image.images();
        images.ptx.retain(has);
        if let Some(text) = images.best(here) {
            return Ok((text.clone(), from.to_owned()));
        }
        if let Image::Machine(code) = &image
            && let Some(path) = beside_in_cache(&self.name, code)
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            return Ok((text, path.display().to_string()));
        }
        Err(without(&images, here))
    }
}

/// The library that a module is of. The runtime loads libraries and launches their modules'
/// functions.
fn library_of(module: Handle, images: &HashMap<usize, Loaded>) -> Option<Handle> {
    if images.contains_key(&(module as usize)) {
        return None;
    }
    let mut libraries = images.iter().filter(|(_, one)| one.is_library);
    let is_of = |library: Handle| {
        let mut own = std::ptr::null_mut();
        driver::cuLibraryGetModule(&raw mut own, library) == OK && own == module
    };
    let found = libraries.find(|(handle, _)| is_of(**handle as Handle));
    found.map(|(handle, _)| *handle as Handle)
}

fn text(from: *const c_char) -> String {
    // SAFETY: the driver's own text, which ends in a zero.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_string_lossy().into_owned()
}

/// Triton keeps a kernel's PTX beside its machine code in a cache: the text beside the same bytes.
fn beside_in_cache(kernel: &str, code: &[u8]) -> Option<PathBuf> {
    let named = std::env::var_os("TRITON_CACHE_DIR").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".triton/cache"));
    let folders = std::fs::read_dir(named.or(home)?).ok()?;
    let machine = format!("{kernel}.cubin");
    folders.flatten().find_map(|folder| {
        let path = folder.path().join(&machine);
        let long = std::fs::metadata(&path).ok()?.len();
        // The driver is told no length, so the copy may lack what pads the end of the file.
        let same = long >= code.len() as u64 && std::fs::read(&path).ok()?.starts_with(code);
        let text = path.with_extension("ptx");
        (same && text.is_file()).then_some(text)
    })
}

fn without(images: &Images, here: Arch) -> String {
    let number = here
        .name()
        .trim_start_matches("sm_")
        .trim_end_matches(char::is_alphabetic);
    if let Some(broken) = images.broken.first() {
        return format!("its PTX can't be unpacked: {broken}");
    }
    let machine: Vec<String> = images
        .machine
        .iter()
        .map(|arch| format!("sm_{arch}"))
        .collect();
    format!(
        "the program has machine code of it for {} and no PTX for {}: build it with \
         `-gencode arch=compute_{number},code=compute_{number}` as well, or say where its PTX is with --ptx",
        match machine.is_empty() {
            true => "other architectures".to_owned(),
            false => machine.join(", "),
        },
        here.name(),
    )
}
