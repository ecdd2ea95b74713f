//! A kernel and everything that it calls, from PTX to code that can run.

use crate::code::{Code, Reach, Shape};
use crate::decode::decoder::{Decoder, Pool};
use crate::decode::names::Storage;
use crate::decode::trail::Trail;
use crate::decode::variables::{MOST_ALIGNED, Variables};
use crate::decode::{isolation, pipe};
use crate::engine::executable::Executable;
use crate::special::Special;
use crate::watch;
use heist_ptx::analysis::Scopes;
use heist_ptx::{Diagnostic, Function, FunctionKind, Module, Name, Span, rule};
use rustc_hash::FxHashMap;

/// The registers that a thread can have.
const MOST_REGISTERS: u32 = 255;

/// Decodes `entry` of a module and everything that it calls.
pub(crate) fn decode(
    module: &Module,
    variables: &Variables,
    entry: &str,
    shared_start: u32,
) -> Result<Executable, Vec<Diagnostic>> {
    let by_name: FxHashMap<Name, &Function> = defined(module);
    let Some(kernel) = by_name
        .get(entry)
        .copied()
        .filter(|function| function.kind == FunctionKind::Entry)
    else {
        let known: Vec<String> = module.entries().map(|f| format!("`{}`", f.name)).collect();
        return Err(vec![
            Diagnostic::error(
                rule::NO_SUCH_KERNEL,
                Span::NONE,
                format!("there is no kernel `{entry}` in the module"),
            )
            .help(if known.is_empty() {
                "the module has no kernel at all".to_owned()
            } else {
                format!("its kernels are {}", known.join(", "))
            }),
        ]);
    };
    let mut decoder = Decoder {
        module,
        variables,
        by_name,
        targets: FxHashMap::default(),
        numbers: FxHashMap::default(),
        queue: Vec::new(),
        ops: Vec::new(),
        leaves: Vec::new(),
        sites: Vec::new(),
        locs: Vec::new(),
        labels: Vec::new(),
        tables: Vec::new(),
        table_of: FxHashMap::default(),
        graph: None,
        functions: Vec::new(),
        pool: Pool::default(),
        specials: Vec::new(),
        shape: Shape::default(),
        shared: FxHashMap::default(),
        shared_start,
        shared_end: 0,
        scopes: Scopes::new(),
        first_label: 0,
        first_table: 0,
        declarations: 0,
        registers: FxHashMap::default(),
        function: 0,
        rows: 0,
        preds: 0,
        frame: 0,
        loc: None,
        returns: Vec::new(),
        span: Span::NONE,
        guard: None,
        reads: Vec::new(),
        writes: 0,
        all_writes: Vec::new(),
        touched: Vec::new(),
        tracks_registers: false,
        moves: false,
        trail: Trail::default(),
        trails: Vec::new(),
        names: Vec::new(),
        widths: Vec::new(),
        pipe: Default::default(),
    };
    decoder.directives(kernel);
    decoder.number_of(kernel);
    let mut errors = Vec::new();
    let mut at = 0;
    while at < decoder.queue.len() {
        let function = decoder.queue[at];
        decoder.function_body(at as u32, function, &mut errors);
        at += 1;
    }
    if errors.is_empty() {
        Ok(decoder.finish())
    } else {
        Err(errors)
    }
}

/// Functions with bodies by name, aliases included.
fn defined(module: &Module) -> FxHashMap<Name, &Function> {
    let mut map: FxHashMap<Name, &Function> = FxHashMap::default();
    for function in module.functions() {
        if function.body.is_some() || !map.contains_key(&function.name) {
            map.insert(function.name.clone(), function);
        }
    }
    for item in &module.items {
        if let heist_ptx::Item::Alias { name, aliasee, .. } = item
            && let Some(function) = map.get(aliasee).copied()
        {
            map.insert(name.clone(), function);
        }
    }
    map
}

#[cfg(test)]
mod tests;

impl Decoder<'_> {
    fn directives(&mut self, kernel: &Function) {
        let triple = |values: &[u64]| {
            let at = |index: usize| values.get(index).copied().unwrap_or(1) as u32;
            [at(0), at(1), at(2)]
        };
        for directive in &kernel.directives {
            let heist_ptx::FunctionDirective::Numbers { name, values, .. } = directive else {
                continue;
            };
            match name.as_str() {
                "maxntid" => self.shape.max_block = Some(triple(values)),
                "reqntid" => self.shape.required_block = Some(triple(values)),
                "reqnctapercluster" => self.shape.required_cluster = Some(triple(values)),
                "minnctapersm" => self.shape.min_blocks = values.first().map(|&n| n as u32),
                // More than a thread can have is no bound at all: ptxas ignores it.
                "maxnreg" => {
                    let most = values.first().map(|&n| n as u32);
                    self.shape.max_registers = most.filter(|&most| most <= MOST_REGISTERS);
                    self.shape.all_registers = most.is_some_and(|most| most > MOST_REGISTERS);
                }
                _ => {}
            }
        }
    }

    fn finish(mut self) -> Executable {
        // Dynamic shared memory begins behind the static variables, as aligned as its own ask for.
        let asked = self.variables.iter().filter_map(|variable| {
            matches!(variable.place, Some(Storage::Dynamic(_))).then_some(variable.align)
        });
        let asked = asked.max().unwrap_or(0).clamp(16, MOST_ALIGNED) as u32;
        self.shape.dynamic_align = self.shape.dynamic_align.max(asked);
        let fixed = self.shared_start + self.shared_end;
        let dynamic = u64::from(fixed.next_multiple_of(self.shape.dynamic_align));
        for special in &mut self.specials {
            if let Special::Dynamic { addend, wide } = *special {
                self.shape.uses_dynamic_shared = true;
                let within = dynamic.wrapping_add(addend);
                *special = Special::Shared { within, wide };
            }
        }
        let reserved = |special: &Special| matches!(special, Special::Reserved(_));
        self.shape.uses_reserved_shared = self.specials.iter().any(reserved);
        pipe::leave_out_unread(&mut self.ops, &self.sites, &self.touched);
        self.shape.static_shared = self.shared_end;
        self.shape.isolated = self
            .queue
            .iter()
            .all(|function| isolation::is_isolated(function))
            && self.ops.iter().all(|op| op.reach != Reach::Device);
        self.shape.in_parts = self
            .queue
            .iter()
            .any(|function| isolation::syncs_in_parts(function));
        self.shape.interacts =
            !self.shape.isolated || self.ops.iter().any(|op| op.reach != Reach::Own);
        self.shape.asynchronous = self
            .queue
            .iter()
            .any(|function| isolation::is_asynchronous(function));
        let own = self.trails.len();
        let watched = self.graph.as_ref().map(|graph| {
            watch::wrap(watch::Body {
                ops: &mut self.ops[..own],
                graph,
                trails: &self.trails,
                names: &self.names,
            })
        });
        let uses = watch::uses(self.trails, &self.ops);
        let code = Code {
            uses,
            widths: self.widths,
            watched: watched.unwrap_or_default(),
            sites: self.sites,
            locs: self.locs,
            files: self
                .module
                .items
                .iter()
                .filter_map(|item| match item {
                    heist_ptx::Item::File(file) => Some((file.index, file.path.clone())),
                    _ => None,
                })
                .collect(),
            labels: self.labels,
            constants: self.pool.rows,
            functions: self.functions,
            specials: self.specials,
            shape: self.shape,
            touched: if self.tracks_registers {
                self.touched
            } else {
                Vec::new()
            },
        };
        Executable {
            ops: self.ops,
            code,
        }
    }
}
