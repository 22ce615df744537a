//! Limits concurrent connections whose peers have not authenticated.
//!
//! Beyond the limit the address with the most connections loses its oldest one: a stalled connection makes room for an active one, and a flood from one
//! address displaces itself.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{AbortHandle, abortable};

/// Tasks in progress.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    most: usize,
    open: Mutex<BTreeMap<u64, (IpAddr, AbortHandle)>>,
    number: AtomicU64,
}

impl ConnectionLimiter {
    /// A limiter for at most `most` tasks.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default(), number: AtomicU64::new(0) })
    }

    /// Starts a task, and ends another if there are too many.
    pub(crate) fn start(self: &Arc<Self>, address: IpAddr, work: impl Future<Output = ()> + Send + 'static) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (work, handle) = abortable(work);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, (address, handle));
        if open.len() > self.most
            && let Some(victim) = oldest_of_the_greediest(open.iter().map(|(number, (address, _))| (*number, *address)))
            && let Some((_, task)) = open.remove(&victim)
        {
            task.abort();
        }
        // Free again before the task is there: a runtime that is being shut down drops it at once, and it takes itself off the list.
        drop(open);
        let ended = Ended { limiter: self.clone(), number };
        tokio::spawn(async move {
            let _ended = ended;
            // Whether it was ended early changes nothing.
            let _ = work.await;
        });
    }
}

/// The first task, in order of age, of the address that has most of them.
fn oldest_of_the_greediest(open: impl Iterator<Item = (u64, IpAddr)>) -> Option<u64> {
    let mut addresses: HashMap<IpAddr, (usize, u64)> = HashMap::new();
    for (number, address) in open {
        addresses.entry(address).or_insert((0, number)).0 += 1;
    }
    addresses.values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest))).map(|(_, oldest)| *oldest)
}

/// Takes a task off the list when it ends, however it ends.
#[derive(Debug)]
struct Ended {
    limiter: Arc<ConnectionLimiter>,
    number: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.limiter.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_displaces_itself() {
        let (flood, other, third) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 3]));
        let victim = |open: &[(u64, IpAddr)]| oldest_of_the_greediest(open.iter().copied());
        assert_eq!(victim(&[(1, other), (2, flood), (3, flood), (4, third), (5, flood)]), Some(2));
        assert_eq!(victim(&[(1, other), (2, flood)]), Some(1), "the oldest where all have as many");
        assert_eq!(victim(&[]), None);
    }

    #[test]
    fn a_task_that_the_runtime_no_longer_takes_leaves_the_list() {
        let limiter = ConnectionLimiter::new(3);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let handle = runtime.handle().clone();
        drop(runtime);
        let _inside = handle.enter();
        limiter.start(IpAddr::from([10, 0, 0, 1]), std::future::pending());
        assert!(limiter.open.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
    }

    #[tokio::test]
    async fn there_are_never_more_than_so_many() {
        let limiter = ConnectionLimiter::new(3);
        for _ in 0..50 {
            limiter.start(IpAddr::from([10, 0, 0, 1]), std::future::pending());
            assert!(limiter.open.lock().unwrap_or_else(PoisonError::into_inner).len() <= 3);
        }
        limiter.start(IpAddr::from([10, 0, 0, 2]), async {});
        tokio::task::yield_now().await;
        assert!(limiter.open.lock().unwrap_or_else(PoisonError::into_inner).len() <= 3);
    }
}
