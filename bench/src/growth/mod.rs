//! What a step costs as its graph grows. So far the graphs alone.

// Until runs can be started, the tests alone make them.
#[cfg_attr(not(test), expect(dead_code))]
mod shapes;
