//! PTX as text for the driver: its header, and the one change that may be made to it.

use heist_ptx::{Module, Space, Statement, Variable, Version};
use std::borrow::Cow;

/// A PTX text and the name to call it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxText {
    /// A path, or what stands for one in messages.
    pub name: String,
    /// The text.
    pub text: String,
}

impl PtxText {
    /// A text by name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> PtxText {
        PtxText {
            name: name.into(),
            text: text.into(),
        }
    }

    /// A module, printed.
    pub fn from_module(name: impl Into<String>, module: &Module) -> PtxText {
        PtxText::new(name, heist_ptx::print(module))
    }

    /// What its `.version` says.
    pub fn version(&self) -> Option<Version> {
        let (start, end) = directive(&self.text, ".version")?;
        let (major, minor) = self.text[start..end].split_once('.')?;
        Some(Version::new(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The architecture that its `.target` says.
    pub fn target(&self) -> Option<&str> {
        let (start, end) = directive(&self.text, ".target")?;
        Some(&self.text[start..end])
    }

    /// The names after `.entry`, in order.
    pub fn kernels(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut rest = self.text.as_str();
        while let Some((start, end)) = directive(rest, ".entry") {
            names.push(rest[start..end].to_owned());
            rest = &rest[end..];
        }
        names
    }

    /// How many parameters a kernel declares; `None` if there is no such kernel, or
    /// the text is not PTX as we read it.
    pub fn parameters(&self, kernel: &str) -> Option<usize> {
        let source = heist_ptx::Source::new(self.name.as_str(), self.text.as_str());
        let module = heist_ptx::parse(&source).ok()?;
        let found = module.entries().find(|entry| entry.name == kernel)?;
        Some(found.params.len())
    }

    /// Whether it declares memory that outlives a launch and that kernels can write. A text that
    /// is not PTX as we read it may.
    pub(crate) fn has_global_variables(&self) -> bool {
        let source = heist_ptx::Source::new(self.name.as_str(), self.text.as_str());
        heist_ptx::parse(&source).map_or(true, |module| {
            module.variables().any(is_global)
                || module
                    .functions()
                    .any(|function| has_global(function.body.as_deref().unwrap_or_default()))
        })
    }

    /// The same text with a `.version` of at most `newest`. Nothing else changes,
    /// lines included; if an instruction does need the later version, the
    /// assembler says so. For tests: a driver may be older than the compiler that
    /// wrote a file which uses nothing new.
    #[must_use]
    pub fn clamped(&self, newest: Version) -> Cow<'_, PtxText> {
        let at = directive(&self.text, ".version");
        match (self.version(), at) {
            (Some(version), Some((start, end))) if version > newest => {
                let text = format!("{}{newest}{}", &self.text[..start], &self.text[end..]);
                Cow::Owned(PtxText::new(self.name.clone(), text))
            }
            _ => Cow::Borrowed(self),
        }
    }
}

fn is_global(variable: &Variable) -> bool {
    variable.space == Space::Global
}

fn has_global(statements: &[Statement]) -> bool {
    statements.iter().any(|statement| match statement {
        Statement::Variable(variable) => is_global(variable),
        Statement::Block(inner) => has_global(inner),
        _ => false,
    })
}

/// Where the word after a directive is, outside comments.
fn directive(text: &str, name: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if let Some(after) = rest.strip_prefix(name)
            && after.starts_with(char::is_whitespace)
        {
            let start = text.len() - after.trim_start().len();
            let word = &text[start..];
            let end = word
                .find(|c: char| c.is_whitespace() || ",;({".contains(c))
                .unwrap_or(word.len());
            return Some((start, start + end));
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> PtxText {
        PtxText::new(
            "k.ptx",
            "// .version 7.0\n/* .target sm_1 */\n.version 9.4\n.target sm_90a, debug\n.visible .entry add(.param .u64 p)\n{ ret; }\n.entry\tsub()\n{ ret; }\n",
        )
    }

    #[test]
    fn parameters_are_counted() {
        let two = PtxText::new(
            "k.ptx",
            ".version 9.0\n.target sm_90\n.address_size 64\n\
             .entry two(.param.u64 p, /* ) */ .param .align 8 .b8 q[16]) { ret; }\n\
             .entry none { ret; }\n",
        );
        assert_eq!(two.parameters("two"), Some(2));
        assert_eq!(two.parameters("none"), Some(0));
        assert_eq!(two.parameters("three"), None);
        assert_eq!(PtxText::new("", "no PTX").parameters("two"), None);
    }

    #[test]
    fn variables_that_outlive_a_launch_are_found() {
        let keeps = |outside: &str, inside: &str| {
            let text = format!(
                ".version 9.0\n.target sm_90\n.address_size 64\n{outside}\n\
                 .entry k(.param .u64 .ptr .global .align 4 p) {{ {inside} ret; }}\n"
            );
            PtxText::new("k.ptx", text).has_global_variables()
        };
        assert!(!keeps("", ""));
        assert!(!keeps(
            "// .global .u32 x;\n.const .u32 c = 1;\n.shared .u32 s;",
            ".local .u32 l;"
        ));
        assert!(keeps(".visible .global .align 4 .u32 x = 1;", ""));
        assert!(keeps("", ".global .u32 x;"));
        assert!(keeps("", "{ .global .u32 x; }"));
        assert!(PtxText::new("", "no PTX").has_global_variables());
    }

    #[test]
    fn what_it_says_of_itself() {
        assert_eq!(text().version(), Some(Version::new(9, 4)));
        assert_eq!(text().target(), Some("sm_90a"));
        assert_eq!(text().kernels(), ["add", "sub"]);
        let nothing = PtxText::new("x", "/* open");
        assert_eq!((nothing.version(), nothing.target()), (None, None));
        assert_eq!(PtxText::new("x", ".version 9").version(), None);
        let behind_nothing = PtxText::new("x", "/**/.version 9.1\n");
        assert_eq!(behind_nothing.version(), Some(Version::new(9, 1)));
    }

    #[test]
    fn the_version_is_lowered_and_nothing_else() {
        let original = text();
        let clamped = original.clamped(Version::new(9, 0));
        assert_eq!(clamped.text, original.text.replace("9.4", "9.0"));
        assert!(matches!(
            original.clamped(Version::new(9, 4)),
            Cow::Borrowed(_)
        ));
        assert!(matches!(
            original.clamped(Version::new(10, 0)),
            Cow::Borrowed(_)
        ));
    }
}
