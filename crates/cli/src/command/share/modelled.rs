//! The tables of a simulated GPU, and a drawing of both tenants.

use super::Share;
use super::figures::{Figures, Row};
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::progress::Progress;
use heist::job::JobError;
use heist::share::Company;
use heist::share::modelled::{Lodger, Model};
use heist_launch::Clock;
use heist_ptx::arch::Gpu;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Launches of an interactive kernel for each figure.
const SAMPLES: u32 = 24;

impl Share {
    pub(super) fn modelled(&self, gpu: Gpu, out: Output) -> Result<Verdict, BadQuestion> {
        self.can_draw()?;
        let model = Model::new(gpu);
        let target = model.target();
        let (tenants, interactives) = (self.tenants(target)?, self.interactives(target)?);
        self.holds(target)?;
        let small = interactives.iter().map(|one| model.move_in(one));
        let small = small.collect::<Result<Vec<_>, _>>().map_err(question)?;
        let idle = small.iter().map(|one| model.alone(one));
        let idle = idle.collect::<Result<Vec<_>, _>>().map_err(question)?;
        // A launch of each says how many there will be, which is what takes the time.
        let batches = side_by_side(&tenants, |tenant| {
            let batch = model.move_in(tenant)?;
            let alone = model.alone(&batch)?;
            Ok((batch, alone))
        });
        let batches: Vec<(Lodger, f64)> = batches.map_err(question)?;
        let of_one = |(_, alone): &(Lodger, f64)| {
            small.len() * model.launches(*alone, self.company(*alone)) + self.held(target).len()
        };
        let launches = batches.iter().map(of_one).sum();
        let progress = Progress::new(out, "launches", launches);
        let rows = side_by_side(&batches, |batch| self.row(&model, batch, &small, &progress));
        drop(progress);
        let rows = rows.map_err(question)?;
        self.draw((&tenants, &rows), &interactives, |batch, interactive| {
            model.pair(batch, interactive)
        })?;
        let figures = Figures {
            question: self,
            device: format!("sim:{}", gpu.id),
            clock: Clock::Modelled,
            target,
            rows,
            idle,
            peer: None,
            timeline: self.trace.as_deref(),
        };
        figures.answer(out);
        Ok(Verdict::Clean)
    }

    /// How the interactive kernels come beside a batch that takes `alone` microseconds.
    fn company(&self, alone: f64) -> Company {
        Company {
            samples: self.samples.unwrap_or(SAMPLES) as usize,
            ..Company::for_model(alone)
        }
    }

    fn row(
        &self,
        model: &Model,
        (batch, alone): &(Lodger, f64),
        small: &[Lodger],
        progress: &Progress,
    ) -> Result<Row, JobError> {
        let (name, alone) = (&batch.name, *alone);
        let company = self.company(alone);
        let beside = small.iter().map(|interactive| {
            let seen = model.beside((batch, alone), interactive, company);
            progress.steps(name, model.launches(alone, company));
            seen
        });
        let beside = beside.collect::<Result<_, _>>()?;
        let held = self.held(model.target()).into_iter().map(|sms| {
            let time = model.held(batch, alone, sms);
            progress.step(name);
            time
        });
        Ok(Row {
            name: name.clone(),
            alone,
            beside,
            held: held.collect::<Result<_, _>>()?,
            stands_for: batch.shapes().collect(),
        })
    }
}

/// The same for each tenant, on all cores.
fn side_by_side<B: Sync, T: Send>(
    tenants: &[B],
    work: impl Fn(&B) -> Result<T, JobError> + Sync,
) -> Result<Vec<T>, JobError> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(tenants.len()) {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(tenant) = tenants.get(at)
                {
                    let done = work(tenant);
                    match results.lock() {
                        Ok(mut results) => results.push((at, done)),
                        Err(poisoned) => poisoned.into_inner().push((at, done)),
                    }
                }
            });
        }
    });
    let mut results = match results.into_inner() {
        Ok(results) => results,
        Err(poisoned) => poisoned.into_inner(),
    };
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
