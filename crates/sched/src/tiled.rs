//! A kernel made of tiles: what it is called, how its tiles are scheduled, and
//! what one tile does.

use crate::classes::Classes;
use crate::erased::AnyPolicy;
use crate::hidden::Scheduled;
use crate::order::{AnyOrder, Linear, TileOrder};
use crate::pause::TILES_A_LEAVE;
use crate::policies::Greedy;
use crate::policy::Policy;
use crate::shape::Shape;
use crate::source::{Submit, TicketGrid, TileSource};
use crate::tile_loop::{Done, TileLoop};
use crate::watch::Watch;
use heist_builder::{Arch, BuildError, BuiltKernel, Kernel, KernelParams, KernelSpec};
use heist_launch::Dim3;
use std::marker::PhantomData;

/// A kernel made of tiles, not yet built.
///
/// ```
/// use heist_builder::{Arch, BuildError, Global, kernel_params};
/// use heist_sched::{FirstHalf, MaxSteals, TileSource, Tiled};
///
/// kernel_params! { pub struct Scale { data: Global<f32>, factor: f32, n: u32 } }
///
/// let kernel = Tiled::<Scale>::new("scale", 1000)
///     .policy(MaxSteals { limit: 8 } & FirstHalf)
///     .source(TileSource::Ticket)
///     .block(256)
///     .build(Arch::SM_90, |k, args, tiles| {
///         let weight = (args.factor * 0.5).named("weight"); // once a block
///         tiles.each(|tile| {
///             let i = tile.x * k.block_dim().x + k.thread().x; // once a tile
///             k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * weight));
///         })
///     })?;
/// assert_eq!(kernel.source(), TileSource::Ticket);
/// # Ok::<(), BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tiled<A> {
    name: String,
    tiles: Dim3,
    block: [u32; 3],
    cluster: Dim3,
    source: Option<TileSource>,
    submit: Submit,
    in_flight: Option<u32>,
    grid: Option<TicketGrid>,
    policy: AnyPolicy,
    order: AnyOrder,
    classes: Option<Classes>,
    watch: Watch,
    watchdog: u64,
    padded: bool,
    apart: bool,
    draws_all: bool,
    behind_prologue: bool,
    state: Option<u32>,
    pausing: bool,
    min_blocks: Option<u32>,
    locations: bool,
    args: PhantomData<fn() -> A>,
}

/// The most requests of launch control in flight: tiles of 60 ns keep a block busy with so many.
pub const MOST_REQUESTS: u32 = 16;

/// How many tiles of a grid make how many clusters of tiles.
pub(crate) fn clusters_of(tiles: Dim3, cluster: Dim3) -> Dim3 {
    Dim3::new(
        tiles.x.div_ceil(cluster.x.max(1)),
        tiles.y.div_ceil(cluster.y.max(1)),
        tiles.z.div_ceil(cluster.z.max(1)),
    )
}

pub(crate) fn rank_of(clusters: Dim3) -> u32 {
    match (clusters.y, clusters.z) {
        (0 | 1, 0 | 1) => 1,
        (_, 0 | 1) => 2,
        _ => 3,
    }
}

impl<A: KernelParams> Tiled<A> {
    /// A kernel called `name` over a grid of tiles: greedy, in linear order,
    /// from the best source of its target, in blocks of 128 threads.
    ///
    /// The built kernel can be launched over other grids with as many axes.
    pub fn new(name: impl Into<String>, tiles: impl Into<Dim3>) -> Tiled<A> {
        Tiled {
            name: name.into(),
            tiles: tiles.into(),
            block: [128, 1, 1],
            cluster: Dim3::ONE,
            source: None,
            submit: Submit::Early,
            in_flight: None,
            grid: None,
            policy: AnyPolicy::new(Greedy),
            order: AnyOrder::new(Linear),
            classes: None,
            watch: Watch::Off,
            watchdog: 1_000_000,
            padded: false,
            apart: false,
            draws_all: false,
            behind_prologue: false,
            state: None,
            pausing: false,
            min_blocks: None,
            locations: true,
            args: PhantomData,
        }
    }

    /// When a block asks for more.
    #[must_use]
    pub fn policy(mut self, policy: impl Policy + Send + Sync + 'static) -> Self {
        let name = policy.name();
        self.policy = AnyPolicy::new(policy).called(name);
        self
    }

    /// Where tiles come from. By default, [`TileSource::auto`] with a prologue.
    #[must_use]
    pub fn source(mut self, source: TileSource) -> Self {
        self.source = Some(source);
        self
    }

    /// When a request is submitted.
    #[must_use]
    pub fn submit(mut self, submit: Submit) -> Self {
        self.submit = submit;
        self
    }

    /// How many requests of launch control may be in flight, from 1, the default, to
    /// [`MOST_REQUESTS`]: with tiles shorter than an answer takes, about a microsecond, one at a time
    /// is too few. Every request in flight is a tile that no other block can run, so with long
    /// tiles more of them only make the end uneven.
    ///
    /// For the source [`TileSource::Clc`] with early submission. Under a policy that must know the
    /// last answer before it is asked again ([`Policy::asks_ahead`]) one is in flight at a time,
    /// whatever is said here; [`TiledKernel::in_flight`] tells.
    ///
    /// ```
    /// use heist_builder::{Arch, Global, kernel_params};
    /// use heist_sched::{MaxSteals, TileSource, Tiled};
    /// kernel_params! { pub struct Fill { data: Global<u32> } }
    /// let tiled = Tiled::<Fill>::new("fill", 100).source(TileSource::Clc).in_flight(4);
    /// let in_flight = |tiled: Tiled<Fill>| {
    ///     let kernel = tiled.build(Arch::SM_100, |_, args, tiles| {
    ///         tiles.each(|tile| args.data.at(tile.x).store(1))
    ///     });
    ///     kernel.unwrap().in_flight()
    /// };
    /// assert_eq!(in_flight(tiled.clone()), 4);
    /// assert_eq!(in_flight(tiled.policy(MaxSteals { limit: 2 })), 1);
    /// ```
    #[must_use]
    pub fn in_flight(mut self, requests: u32) -> Self {
        self.in_flight = Some(requests);
        self
    }

    /// How many blocks the ticket source launches. By default, as many as fit for a policy that
    /// never retires one, some more where a loaded greedy begins, and one for every tile otherwise.
    #[must_use]
    pub fn ticket_grid(mut self, grid: TicketGrid) -> Self {
        self.grid = Some(grid);
        self
    }

    /// In which order tiles are handed out.
    #[must_use]
    pub fn order(mut self, order: impl TileOrder + 'static) -> Self {
        self.order = AnyOrder::new(order);
        self
    }

    /// The same, for a type-erased order.
    #[must_use]
    pub fn any_order(mut self, order: AnyOrder) -> Self {
        self.order = order;
        self
    }

    /// Tiles of several classes: the urgent ones are handed out first, and the others have
    /// a share. Takes the place of an order. For sources that ask.
    ///
    /// ```
    /// use heist_builder::{Arch, Global, kernel_params};
    /// use heist_sched::{Class, Classes, Tiled};
    /// kernel_params! { pub struct Fill { data: Global<u32> } }
    /// let mut of = vec![Class::Normal; 100];
    /// of[60..70].fill(Class::Urgent);
    /// let kernel = Tiled::<Fill>::new("fill", 100)
    ///     .classes(Classes::new(of))
    ///     .build(Arch::SM_90A, |_, args, tiles| {
    ///         tiles.each(|tile| args.data.at(tile.x).store(1))
    ///     })
    ///     .unwrap();
    /// assert_eq!(kernel.order(), "classes");
    /// ```
    #[must_use]
    pub fn classes(mut self, classes: Classes) -> Self {
        self.classes = Some(classes);
        self
    }

    /// Blocks of `threads` along x.
    #[must_use]
    pub fn block(self, threads: u32) -> Self {
        self.block3([threads, 1, 1])
    }

    /// Blocks of x * y * z threads.
    #[must_use]
    pub fn block3(mut self, threads: [u32; 3]) -> Self {
        self.block = threads;
        self
    }

    /// Clusters of blocks, each block with the tile at its own place.
    #[must_use]
    pub fn cluster(mut self, blocks: impl Into<Dim3>) -> Self {
        self.cluster = blocks.into();
        self
    }

    /// How closely it is watched.
    #[must_use]
    pub fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    /// How long a policy may keep a block waiting
    /// ([`PolicyCx::wait_until`](crate::PolicyCx::wait_until)) before it is
    /// overruled, in nanoseconds. One millisecond by default.
    #[must_use]
    pub fn watchdog(mut self, nanoseconds: u64) -> Self {
        self.watchdog = nanoseconds;
        self
    }

    /// Runs the body also for the tiles that round a grid up to whole clusters,
    /// for bodies whose blocks work together. [`Tile::inside`](crate::Tile)
    /// tells them apart.
    #[must_use]
    pub fn padded(mut self) -> Self {
        self.padded = true;
        self
    }

    /// Between two tiles of a block that is alone in its cluster and asks for them, no thread waits for another but
    /// for the scheduler's: some may be at the end of a tile while others begin the next. For bodies whose threads
    /// order their accesses to shared memory by themselves, from tile to tile too.
    #[must_use]
    pub fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// No block begins with the tile of its own number where tiles may be left half done: all are drawn. For bodies that have no
    /// register for the difference.
    #[must_use]
    pub fn draws_all(mut self) -> Self {
        self.draws_all = true;
        self
    }

    /// A block draws its first tile behind the prologue, where the loop begins, and not before it. For launches that may begin
    /// before the one before them has ended (programmatic dependent launch): the prologue waits for that one, and before the wait
    /// nothing is touched that launches share. A block that finds no tile has then run its prologue for nothing.
    #[must_use]
    pub fn behind_prologue(mut self) -> Self {
        self.behind_prologue = true;
        self
    }

    /// The body can leave a tile half done, with so many 32-bit words of state, and go on with it
    /// ([`TileLoop::pause`]). It does under a schedule that [pauses](Self::pausing).
    #[must_use]
    pub fn state(mut self, words: u32) -> Self {
        self.state = Some(words);
        self
    }

    /// Whether a block leaves in the middle of its tile when the launch's bell
    /// ([`BELL_BYTES`](crate::BELL_BYTES)) is rung, and another goes on with the tile. For bodies
    /// with a [state](Self::state), under the ticket source with late submission.
    ///
    /// ```
    /// use heist_builder::{Arch, Global, kernel_params};
    /// use heist_sched::{Submit, TileSource, Tiled, UntilAsked};
    /// kernel_params! { pub struct Sum { data: Global<u32>, sums: Global<u32> } }
    /// let kernel = Tiled::<Sum>::new("sum", 100)
    ///     .source(TileSource::Ticket)
    ///     .submit(Submit::Late)
    ///     .policy(UntilAsked)
    ///     .state(32)
    ///     .pausing(true)
    ///     .block(32)
    ///     .build(Arch::SM_90A, |k, args, tiles| {
    ///         let pause = tiles.pause();
    ///         tiles.each(|tile| {
    ///             let sum = k.var(0u32);
    ///             let (step, left) = (k.var(0u32), k.var(false));
    ///             if let Some(pause) = pause {
    ///                 step.set(pause.from());
    ///                 k.if_(pause.from().ne(0), || sum.set(pause.saved().at(k.lane()).load()));
    ///             }
    ///             k.while_(|| step.get().lt(1000) & !left.get(), || {
    ///                 sum.set(sum.get() + args.data.at(step.get() * 32 + k.lane()).load());
    ///                 step.set(step.get() + 1);
    ///                 if let Some(pause) = pause {
    ///                     k.one_thread(|| { let _ = pause.look(pause.listen(), step.get()); });
    ///                     k.sync();
    ///                     left.set(pause.left());
    ///                     k.sync();
    ///                 }
    ///             });
    ///             if let Some(pause) = pause {
    ///                 k.if_(left.get(), || pause.room().at(k.lane()).store(sum.get()));
    ///             }
    ///             k.if_(!left.get(), || args.sums.at(tile.x * 32 + k.lane()).store(sum.get()));
    ///         })
    ///     })
    ///     .unwrap();
    /// assert!(kernel.ptx().contains("heist_pause"));
    /// ```
    #[must_use]
    pub fn pausing(mut self, pausing: bool) -> Self {
        self.pausing = pausing;
        self
    }

    /// Keeps registers low enough for this many blocks on a multiprocessor.
    #[must_use]
    pub fn min_blocks(mut self, blocks: u32) -> Self {
        self.min_blocks = Some(blocks);
        self
    }

    /// Whether the PTX says which Rust line each instruction comes from.
    #[must_use]
    pub fn locations(mut self, on: bool) -> Self {
        self.locations = on;
        self
    }

    fn shape(&self, arch: Arch) -> Shape {
        let source = self.source.unwrap_or_else(|| {
            match TileSource::auto(arch, &self.policy, true).source {
                // Classes are drawn, whatever the policy says.
                TileSource::Direct if self.classes.is_some() => TileSource::Ticket,
                source => source,
            }
        });
        let begins_with = self.policy.loaded().and_then(|words| words.answer());
        let default_grid = if begins_with == Some(true) {
            // Its blocks stay; the next policy may retire some.
            TicketGrid::Relief
        } else if self.policy.may_retire() || self.pausing {
            TicketGrid::Full
        } else {
            TicketGrid::Resident
        };
        let in_flight = match self.policy.asks_ahead() && self.policy.constant() != Some(false) {
            true => self.in_flight.unwrap_or(1),
            false => 1,
        };
        Shape {
            source,
            submit: self.submit,
            in_flight,
            grid: match self.policy.constant() {
                // A cluster that never asks runs only the tile that it claimed.
                Some(false) => TicketGrid::Full,
                _ => self.grid.unwrap_or(default_grid),
            },
            policy: self.policy.clone(),
            order: match &self.classes {
                Some(classes) => AnyOrder::new(classes.clone()),
                None => self.order.clone(),
            },
            classes: self.classes.clone(),
            watch: self.watch,
            watchdog: self.watchdog,
            padded: self.padded,
            apart: self.apart,
            draws_all: self.draws_all,
            behind_prologue: self.behind_prologue,
            tiles_a_leave: TILES_A_LEAVE,
            pause: self.state.filter(|_| self.pausing),
            cluster: self.cluster,
            rank: rank_of(clusters_of(self.tiles, self.cluster)),
        }
    }

    /// Why there can't be so many requests in flight.
    fn too_many_in_flight(&self, shape: &Shape) -> Option<String> {
        let wanted = self.in_flight?;
        if !(1..=MOST_REQUESTS).contains(&wanted) {
            return Some(format!(
                "{wanted} requests in flight: there can be 1 to {MOST_REQUESTS}"
            ));
        }
        let needs = match (wanted, shape.source, shape.submit) {
            (1, ..) | (_, TileSource::Clc, Submit::Early) => return None,
            (_, TileSource::Clc, Submit::Late) => {
                "early submission: a late request is answered before the next tile begins"
            }
            _ => "the source clc: others answer at once",
        };
        Some(format!("{wanted} requests in flight need {needs}"))
    }

    /// The kernel without its body. `build` is compiled for every body, and this is not.
    #[track_caller]
    fn spec(&self, arch: Arch, shape: &Shape) -> Result<KernelSpec<Scheduled<A>>, BuildError> {
        let too_many = self.too_many_in_flight(shape);
        if let Some(problem) = shape.refused(arch, too_many, self.pausing) {
            return Err(BuildError::new(problem));
        }
        let mut spec = KernelSpec::<Scheduled<A>>::new(self.name.clone())
            .block3(self.block)
            .locations(self.locations);
        if self.cluster.count() != 1 {
            spec = spec.cluster(self.cluster.to_array());
        }
        if let Some(blocks) = self.min_blocks {
            spec = spec.min_blocks(blocks);
        }
        Ok(spec)
    }

    /// Builds the kernel. `body` says what happens once a block, and hands what
    /// happens once a tile to [`TileLoop::each`].
    ///
    /// # Errors
    /// The first thing that could not be built, with its reason.
    #[track_caller]
    pub fn build<F>(&self, arch: Arch, body: F) -> Result<TiledKernel<A>, BuildError>
    where
        F: for<'k> FnOnce(&Kernel<'k>, A::Device<'k>, TileLoop<'k>) -> Done<'k>,
    {
        let shape = self.shape(arch);
        let spec = self.spec(arch, &shape)?;
        let for_loop = shape.clone();
        let built = spec.build(arch, |k, (args, hidden)| {
            let tiles = TileLoop::set_up(k, for_loop, hidden);
            let Done { .. } = body(k, args, tiles);
        })?;
        Ok(TiledKernel {
            built,
            shape,
            tiles: self.tiles,
        })
    }
}

/// A kernel made of tiles, built for a target.
#[derive(Clone, Debug)]
pub struct TiledKernel<A> {
    /// The PTX and how to launch it.
    pub built: BuiltKernel<Scheduled<A>>,
    pub(crate) shape: Shape,
    pub(crate) tiles: Dim3,
}

impl<A: KernelParams> TiledKernel<A> {
    /// The same where a block may leave once in so many `tiles`, in the mean, if they may be left half done: 8 unless said. The launch has
    /// a block more for each leave, which comes for nothing if nobody left. The longer a tile lasts, the more visitors it meets.
    #[must_use]
    pub fn leaving(mut self, tiles: u32) -> Self {
        self.shape.tiles_a_leave = tiles;
        self
    }

    /// Where its tiles come from.
    pub fn source(&self) -> TileSource {
        self.shape.source
    }

    /// When it asks.
    pub fn submit(&self) -> Submit {
        self.shape.submit
    }

    /// How many requests it may have in flight.
    pub fn in_flight(&self) -> u32 {
        self.shape.in_flight
    }

    /// How many blocks it launches, for the ticket source.
    pub fn ticket_grid(&self) -> TicketGrid {
        self.shape.grid
    }

    /// Its policy's name.
    pub fn policy(&self) -> String {
        self.shape.policy.name()
    }

    /// Its order's name.
    pub fn order(&self) -> String {
        self.shape.order.name()
    }

    /// How closely it is watched.
    pub fn watch(&self) -> Watch {
        self.shape.watch
    }

    /// Blocks of a cluster.
    pub fn cluster(&self) -> Dim3 {
        self.shape.cluster
    }

    /// The grid of tiles it was made for.
    pub fn tiles(&self) -> Dim3 {
        self.tiles
    }

    /// Its PTX.
    pub fn ptx(&self) -> String {
        heist_ptx::print(&self.built.module)
    }
}
