//! The messages of panics, with the file and line at which they began.
//!
//! Only the process's panic hook learns the location of a panic. A worker installs a hook once, which notes the location
//! for the attempt that is polled on the panicking thread, and then calls the hook that was installed before.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use crate::limits;

/// The last panic during the poll of an attempt on one thread.
#[derive(Debug, Default)]
struct Recorded {
    /// Whether an attempt is polled on this thread.
    is_polling: bool,
    /// The message and the location of the last panic.
    panic: Option<(String, String)>,
}

thread_local! {
    static RECORDED: RefCell<Recorded> = RefCell::default();
}

/// Installs the panic hook, once for the process.
pub(super) fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            record(info);
            before(info);
        }));
    });
}

fn record(info: &PanicHookInfo<'_>) {
    // A panic while the record is borrowed, or while the thread ends, is not recorded: a second panic would abort.
    let _ = RECORDED.try_with(|recorded| {
        let Ok(mut recorded) = recorded.try_borrow_mut() else {
            return;
        };
        if recorded.is_polling
            && let Some(location) = info.location()
        {
            recorded.panic = Some((text(info.payload()), location.to_string()));
        }
    });
}

/// Calls into an attempt, or into a layer, and records the location of a panic. [`message`] and [`locate`] read the
/// location inside the call.
pub(super) fn recorded<T>(call: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_polling(self.0);
        }
    }
    let _restore = Restore(set_polling(true));
    call()
}

/// Turns recording on or off for this thread, and forgets the last panic. Returns whether recording was on.
fn set_polling(is_polling: bool) -> bool {
    let recorded = Recorded {
        is_polling,
        panic: None,
    };
    let before = RECORDED.try_with(|it| it.replace(recorded).is_polling);
    before.unwrap_or(false)
}

/// Returns the message of a caught panic, followed by the panic's location.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    locate(text(panic))
}

/// Appends the location of the last recorded panic to a text that contains the panic's message. A text about another
/// panic, such as one that was resumed from another thread, stays as it is.
pub(super) fn locate(text: String) -> String {
    let panic = RECORDED.try_with(|recorded| recorded.borrow_mut().panic.take());
    match panic.ok().flatten() {
        Some((message, location)) if text.contains(&message) => {
            let suffix = format!(" at {location}");
            // The storage limit cuts off the end of a message, where the location is.
            let mut text = limits::message(&text);
            while text.len() + suffix.len() > limits::MAX_MESSAGE_BYTES && text.pop().is_some() {}
            text + &suffix
        }
        _ => text,
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    fn caught(call: impl FnOnce()) -> String {
        install_hook();
        recorded(|| match catch_unwind(AssertUnwindSafe(call)) {
            Ok(()) => String::new(),
            Err(panic) => message(&*panic),
        })
    }

    #[test]
    #[expect(clippy::panic, reason = "the subject of the test")]
    fn a_message_ends_with_the_file_and_line_of_the_panic() {
        let line = line!() + 1;
        let message = caught(|| panic!("no such preset: {}", 7));
        let expected = format!("no such preset: 7 at {}:{line}:", file!());
        assert!(message.starts_with(&expected), "{message}");
    }

    #[test]
    #[expect(clippy::panic, reason = "the subject of the test")]
    fn a_long_message_keeps_its_location() {
        let message = caught(|| panic!("{}", "ä".repeat(limits::MAX_MESSAGE_BYTES)));
        assert!(message.len() <= limits::MAX_MESSAGE_BYTES);
        assert!(message.contains(&format!("ä at {}:", file!())));
    }

    #[test]
    #[expect(clippy::panic, reason = "the subject of the test")]
    fn a_resumed_panic_does_not_get_the_location_of_another() {
        let message = caught(|| {
            let _ = catch_unwind(|| panic!("the first"));
            resume_unwind(Box::new("the second"));
        });
        assert_eq!(message, "the second");
    }

    #[test]
    #[expect(clippy::panic, reason = "the subject of the test")]
    fn a_panic_outside_of_attempts_is_not_recorded() {
        install_hook();
        let _ = catch_unwind(|| panic!("elsewhere"));
        let message = caught(|| resume_unwind(Box::new("elsewhere")));
        assert_eq!(message, "elsewhere");
    }
}
