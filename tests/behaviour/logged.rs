//! A capture of the log lines of one test's thread.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

thread_local! {
    /// What was logged on a thread that wants to know.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// The subscriber is the whole process's: tracing remembers for all threads what one of them does
/// not want to hear.
pub(crate) struct Captured;

impl Captured {
    pub(crate) fn begin() {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            let wanted_here = dynamic_filter_fn(|_, _| LOGGED.with_borrow(Option::is_some));
            let layer = tracing_subscriber::fmt::layer()
                .with_span_events(FmtSpan::FULL)
                .with_ansi(false)
                .with_writer(|| Self)
                .with_filter(wanted_here);
            tracing_subscriber::registry().with(layer).init();
        });
        LOGGED.set(Some(Vec::new()));
    }

    /// What was logged so far.
    pub(crate) fn so_far() -> String {
        LOGGED.with_borrow(|logged| String::from_utf8(logged.clone().unwrap()).unwrap())
    }

    /// What was logged, to the end.
    pub(crate) fn text() -> String {
        String::from_utf8(LOGGED.take().unwrap()).unwrap()
    }
}

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| {
            if let Some(logged) = logged {
                logged.extend(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
