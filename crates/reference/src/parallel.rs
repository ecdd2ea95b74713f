//! Work on every core.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What `work` makes of each of the `items`, in their order. Cores take one item at a time, so
/// that items may differ in how long they take.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(at)
        {
            done.push((at, work(item)));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(items.len()))
            .map(|_| scope.spawn(take))
            .collect();
        let mut results = take();
        for other in others {
            match other.join() {
                Ok(part) => results.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::map;
    use std::sync::Barrier;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..1000).collect();
        let squares = map(&items, |item| item * item);
        let expected: Vec<u32> = items.iter().map(|item| item * item).collect();
        assert_eq!(squares, expected);
        assert_eq!(map(&items[..0], |item| *item), []);
    }

    #[test]
    fn two_items_are_worked_on_at_once_where_there_are_two_cores() {
        if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
            let both = Barrier::new(2);
            map(&[(), ()], |()| both.wait().is_leader());
        }
    }

    #[test]
    #[should_panic(expected = "of the last item")]
    fn a_panic_is_passed_on() {
        map(&[1, 2, 3], |item| assert!(*item < 3, "of the last item"));
    }
}
