//! The tables of a simulated GPU, and a drawing of both tenants.

use super::Share;
use super::figures::{Figures, Row};
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::progress::Progress;
use heist::job::JobError;
use heist::share::modelled::{Lodger, Model};
use heist::share::{Company, Tenant};
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
        let cells = tenants.len() * (1 + small.len() + self.held(target).len());
        let progress = Progress::new(out, "figures", cells);
        let rows = side_by_side(&tenants, |tenant| {
            self.row(&model, tenant, &small, &progress)
        });
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

    fn row(
        &self,
        model: &Model,
        tenant: &Tenant,
        small: &[Lodger],
        progress: &Progress,
    ) -> Result<Row, JobError> {
        let batch = model.move_in(tenant)?;
        let alone = model.alone(&batch)?;
        progress.step(&tenant.name);
        let company = Company {
            samples: self.samples.unwrap_or(SAMPLES) as usize,
            ..Company::for_model(alone)
        };
        let beside = small.iter().map(|interactive| {
            let seen = model.beside((&batch, alone), interactive, company);
            progress.step(&tenant.name);
            seen
        });
        let beside = beside.collect::<Result<_, _>>()?;
        let held = self.held(model.target()).into_iter().map(|sms| {
            let time = model.held(&batch, alone, sms);
            progress.step(&tenant.name);
            time
        });
        Ok(Row {
            name: tenant.name.clone(),
            alone,
            beside,
            held: held.collect::<Result<_, _>>()?,
            stands_for: batch.shapes().collect(),
        })
    }
}

/// The same for each tenant, on all cores.
fn side_by_side<T: Send>(
    tenants: &[Tenant],
    work: impl Fn(&Tenant) -> Result<T, JobError> + Sync,
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
