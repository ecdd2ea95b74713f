//! Which kernel is meant: by the name that the PTX has, or the one that C++ has.

use crate::answer::{BadQuestion, question};
use cpp_demangle::{DemangleOptions, Symbol};
use heist_run::{Program, some_of};

/// The kernel of a name, or the only one where none is asked for.
///
/// `_Z5scalePfi`, `scale(float*, int)` and `scale` name the same kernel.
pub(super) fn find<'p>(program: &'p Program, asked: Option<&str>) -> Result<&'p str, BadQuestion> {
    let exact = program.entry(asked);
    let (Err(_), Some(asked)) = (&exact, asked) else {
        return exact.map_err(question);
    };
    let wanted = squeezed(asked);
    let names = program.module().entries().map(|entry| entry.name.as_str());
    let meant: Vec<&str> = names
        .filter(|name| spellings(name).iter().any(|one| squeezed(one) == wanted))
        .collect();
    match meant.as_slice() {
        [only] => Ok(only),
        [] => exact.map_err(question),
        several => Err(question(format!(
            "{}: `{asked}` is the name of {} kernels; say one of them whole: {}",
            program.source().name(),
            several.len(),
            some_of(
                &several
                    .iter()
                    .filter_map(|name| spellings(name).into_iter().next())
                    .collect::<Vec<_>>()
            )
        ))),
    }
}

/// A mangled name as C++ spells it: whole, without what it returns, without its
/// parameters, and without the arguments of a template. Nothing for other names.
fn spellings(mangled: &str) -> Vec<String> {
    let Ok(symbol) = Symbol::new(mangled) else {
        return Vec::new();
    };
    let whole = DemangleOptions::new();
    let named = DemangleOptions::new().no_return_type();
    let bare = DemangleOptions::new().no_return_type().no_params();
    let mut spellings: Vec<String> = [whole, named, bare]
        .iter()
        .filter_map(|options| symbol.demangle_with_options(options).ok())
        .collect();
    let template = spellings
        .last()
        .and_then(|bare| Some(bare.split_once('<')?.0.to_owned()));
    spellings.extend(template);
    spellings
}

/// A name as people write it: without what C++ has mangled into it, where it has.
pub(super) fn readable(name: &str) -> String {
    let mut spelled = spellings(name).into_iter();
    spelled.nth(1).unwrap_or_else(|| name.to_owned())
}

/// Blanks mean nothing between the words of a name.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::Source;

    fn program(names: &[&str]) -> Program {
        let entries = names
            .iter()
            .map(|name| format!(".entry {name}() {{ ret; }}\n"));
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n{}",
            entries.collect::<String>()
        );
        Program::new(Source::new("k.ptx", text)).expect("PTX")
    }

    fn found(names: &[&str], asked: &str) -> Result<String, String> {
        match find(&program(names), Some(asked)) {
            Ok(name) => Ok(name.to_owned()),
            Err(BadQuestion::Sentence(why)) => Err(why),
            Err(BadQuestion::Diagnostics(..)) => Err("findings".to_owned()),
        }
    }

    #[test]
    fn demangled_names_are_taken() {
        let names = ["_Z5scalePfi", "_ZN4deep3addIfEEvPT_", "plain"];
        for (asked, name) in [
            ("_Z5scalePfi", names[0]),
            ("scale(float*, int)", names[0]),
            ("scale(float *,int)", names[0]),
            ("scale", names[0]),
            ("void deep::add<float>(float*)", names[1]),
            ("deep::add<float>", names[1]),
            ("deep::add", names[1]),
            ("plain", names[2]),
        ] {
            assert_eq!(found(&names, asked).as_deref(), Ok(name), "{asked}");
        }
        let none = found(&names, "sca").expect_err("no such kernel");
        assert!(none.contains("there is no kernel `sca`"), "{none}");
        let two = found(&["_Z5scalePfi", "_Z5scalePdi"], "scale").expect_err("two");
        assert!(two.contains("scale(double*, int)"), "{two}");
    }
}
