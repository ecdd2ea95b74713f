//! Import cycles between the files of a crate.
//!
//! A file depends on another when it names something that is defined there, through
//! whatever re-exports. Files that depend on each other in a circle can't be read
//! one after the other; a pair (a parent and its child, say) still can, so only larger cycles are
//! refused. Tests are exempt.

use crate::shell::Failed;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// The largest cycle that is allowed.
const ALLOWED: usize = 2;

/// A path, name by name.
type Names = Vec<String>;

/// The circles of more than two files in the crate at `folder`, each as its files.
pub(crate) fn of_crate(folder: &Path) -> Result<Vec<Vec<PathBuf>>, Failed> {
    let mut circles = Vec::new();
    for root in ["lib.rs", "main.rs"] {
        let root = folder.join("src").join(root);
        if root.is_file() {
            let tree = Tree::read(&root)?;
            circles.extend(tree.circles());
        }
    }
    circles.sort();
    circles.dedup();
    Ok(circles)
}

/// The modules of a crate by their paths.
struct Tree {
    modules: BTreeMap<Names, Module>,
}

/// One module: a file, or a part of one that is a module inside it.
struct Module {
    file: PathBuf,
    /// What it defines itself.
    items: BTreeSet<String>,
    /// What `use` brings into it: the name it has here, and the path as written.
    imports: HashMap<String, Names>,
    /// `use …::*`.
    globs: Vec<Names>,
    /// Names that other modules see through this one only.
    exports: BTreeSet<String>,
    /// Every path that it mentions.
    mentions: BTreeSet<Names>,
}

impl Tree {
    fn read(root: &Path) -> Result<Tree, Failed> {
        let mut tree = Tree {
            modules: BTreeMap::new(),
        };
        tree.add_file(
            root,
            Vec::new(),
            root.parent().unwrap_or(root).to_path_buf(),
        )?;
        Ok(tree)
    }

    /// Adds the module of a file, and those below it, which lie in `children`.
    fn add_file(&mut self, file: &Path, path: Names, children: PathBuf) -> Result<(), Failed> {
        let say = |error: &dyn std::fmt::Display| Failed(format!("{}: {error}", file.display()));
        let text = fs::read_to_string(file).map_err(|error| say(&error))?;
        let parsed = syn::parse_file(&text).map_err(|error| say(&error))?;
        self.add_items(file, path, &children, &parsed.items)
    }

    fn add_items(
        &mut self,
        file: &Path,
        path: Names,
        children: &Path,
        items: &[syn::Item],
    ) -> Result<(), Failed> {
        let mut module = Module {
            file: file.to_path_buf(),
            items: BTreeSet::new(),
            imports: HashMap::new(),
            globs: Vec::new(),
            exports: BTreeSet::new(),
            mentions: BTreeSet::new(),
        };
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                syn::Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let below = [&path[..], std::slice::from_ref(&name)].concat();
                    let folder = children.join(&name);
                    if let Some((_, items)) = &child.content {
                        self.add_items(file, below, &folder, items)?;
                    } else {
                        let plain = children.join(format!("{name}.rs"));
                        let nested = folder.join("mod.rs");
                        let at = if plain.is_file() { plain } else { nested };
                        self.add_file(&at, below, folder)?;
                    }
                }
                syn::Item::Use(import) => {
                    let public = !matches!(import.vis, syn::Visibility::Inherited);
                    module.import(&import.tree, Vec::new(), public);
                }
                other => {
                    module.items.extend(name_of(other));
                    Mentions(&mut module.mentions).visit_item(other);
                }
            }
        }
        self.modules.insert(path, module);
        Ok(())
    }

    /// The file that defines what `names`, written in module `at`, stands for.
    fn resolve(&self, at: &[String], names: &[String], depth: usize) -> Option<&Path> {
        if depth == 0 {
            return None;
        }
        let (first, rest) = names.split_first()?;
        match first.as_str() {
            "crate" => self.descend(&[], rest, depth),
            "self" => self.descend(at, rest, depth),
            "super" => self.descend(at.split_last()?.1, rest, depth),
            _ => self.descend(at, names, depth),
        }
    }

    /// Goes down from module `at` along `names`.
    fn descend(&self, at: &[String], names: &[String], depth: usize) -> Option<&Path> {
        let module = self.modules.get(at)?;
        // A path that ends at a module uses nothing of it yet.
        let (first, rest) = names.split_first()?;
        if first == "super" {
            return self.descend(at.split_last()?.1, rest, depth);
        }
        let below = [at, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&below) {
            return self.descend(&below, rest, depth);
        }
        if module.items.contains(first) {
            return Some(&module.file);
        }
        if let Some(target) = module.imports.get(first) {
            // An item has no names below it that matter here; a module does.
            let longer = [&target[..], rest].concat();
            return self
                .resolve(at, &longer, depth - 1)
                .or_else(|| self.resolve(at, target, depth - 1));
        }
        let mut globs = module.globs.iter();
        globs.find_map(|glob| {
            let longer = [&glob[..], names].concat();
            self.resolve(at, &longer, depth - 1)
        })
    }

    /// Which file depends on which.
    fn edges(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let mut edges: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for (path, module) in &self.modules {
            let own = edges.entry(&module.file).or_default();
            let imports = module.imports.iter();
            let imports = imports.filter(|(name, _)| !module.exports.contains(*name));
            let all = imports.map(|(_, target)| target).chain(&module.mentions);
            own.extend(
                all.filter_map(|names| self.resolve(path, names, 16))
                    .filter(|file| *file != module.file),
            );
        }
        edges
    }

    fn circles(&self) -> Vec<Vec<PathBuf>> {
        let edges = self.edges();
        let reach: BTreeMap<&Path, BTreeSet<&Path>> = edges
            .keys()
            .map(|start| (*start, reached(start, &edges)))
            .collect();
        let mut circles = BTreeSet::new();
        for (file, reached) in &reach {
            let circle: Vec<PathBuf> = reached
                .iter()
                .filter(|other| reach.get(**other).is_some_and(|back| back.contains(file)))
                .map(|other| other.to_path_buf())
                .collect();
            if circle.len() > ALLOWED {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }
}

/// Everything that is reached from `start` in one step or more.
fn reached<'t>(
    start: &'t Path,
    edges: &BTreeMap<&'t Path, BTreeSet<&'t Path>>,
) -> BTreeSet<&'t Path> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for next in edges.get(file).into_iter().flatten() {
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    seen
}

impl Module {
    fn import(&mut self, tree: &syn::UseTree, mut path: Names, public: bool) {
        match tree {
            syn::UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.import(&step.tree, path, public);
            }
            syn::UseTree::Name(name) => {
                let here = match name.ident.to_string() {
                    this if this == "self" => path.last().cloned().unwrap_or_default(),
                    named => {
                        path.push(named.clone());
                        named
                    }
                };
                self.bring(here, path, public);
            }
            syn::UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                self.bring(rename.rename.to_string(), path, public);
            }
            syn::UseTree::Glob(_) => self.globs.push(path),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone(), public);
                }
            }
        }
    }

    fn bring(&mut self, here: String, path: Names, public: bool) {
        if public {
            self.exports.insert(here.clone());
        }
        self.imports.insert(here, path);
    }
}

/// Collects the paths that code mentions, inside macros' arguments too.
struct Mentions<'m>(&'m mut BTreeSet<Names>);

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|step| step.ident.to_string());
        self.0.insert(names.collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        let words = call.tokens.to_string().replace(" :: ", "::");
        for word in words.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            if word.contains("::") {
                self.0.insert(word.split("::").map(str::to_owned).collect());
            }
        }
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(function) => &function.attrs[..],
            _ => &[],
        };
        if !is_test(attributes) {
            syn::visit::visit_impl_item(self, item);
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|flag| flag.is_ident("test"))
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(it) => &it.attrs,
        syn::Item::Enum(it) => &it.attrs,
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Macro(it) => &it.attrs,
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Static(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Trait(it) => &it.attrs,
        syn::Item::Type(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(it) => &it.ident,
        syn::Item::Enum(it) => &it.ident,
        syn::Item::Fn(it) => &it.sig.ident,
        syn::Item::Macro(it) => it.ident.as_ref()?,
        syn::Item::Static(it) => &it.ident,
        syn::Item::Struct(it) => &it.ident,
        syn::Item::Trait(it) => &it.ident,
        syn::Item::TraitAlias(it) => &it.ident,
        syn::Item::Type(it) => &it.ident,
        syn::Item::Union(it) => &it.ident,
        _ => return None,
    };
    Some(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate with these files, as the files' names.
    fn circles(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = std::env::temp_dir().join(format!("heist-{name}-{}", std::process::id()));
        for (file, text) in files {
            let at = folder.join("src").join(file);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        }
        let found = of_crate(&folder).ok().unwrap();
        let source = folder.join("src");
        let named = found.iter().map(|circle| {
            let short = circle
                .iter()
                .map(|file| file.strip_prefix(&source).unwrap());
            short.map(|file| file.display().to_string()).collect()
        });
        let named = named.collect();
        fs::remove_dir_all(folder).unwrap();
        named
    }

    #[test]
    fn a_circle_of_three_is_told_through_a_re_export() {
        let found = circles(
            "three",
            &[
                ("lib.rs", "mod a; mod b; mod c;"),
                ("a.rs", "use crate::b::Deep; pub struct A(Deep);"),
                ("b/mod.rs", "mod deep; pub use deep::Deep;"),
                ("b/deep.rs", "pub struct Deep; fn f() { crate::c::g() }"),
                ("c.rs", "pub fn g() { let _ = vec![crate::a::A::new()]; }"),
            ],
        );
        assert_eq!(found, [["a.rs", "b/deep.rs", "c.rs"]]);
    }

    #[test]
    fn a_pair_and_what_tests_use_are_let_pass() {
        let found = circles(
            "pair",
            &[
                ("lib.rs", "mod a; mod b; mod c;"),
                ("a.rs", "use super::b::B; pub struct A(B);"),
                (
                    "b.rs",
                    "pub struct B; impl B { fn a(&self) -> crate::a::A { todo() } }",
                ),
                (
                    "c.rs",
                    "use crate::a; pub fn g() -> a::A { todo() }
                          #[cfg(test)] mod tests { use crate::a::A; }",
                ),
            ],
        );
        assert!(found.is_empty(), "{found:?}");
    }
}
