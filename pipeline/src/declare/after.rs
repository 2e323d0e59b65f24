//! Upstream steps of a step that is about to be declared.

use std::borrow::Borrow;
use std::marker::PhantomData;

use jobs::Perform;

use super::branch::{Arms, Branch};
use super::builder::{PipelineBuilder, Upstream};
use super::callback::FailureInput;
use super::feeds::{Feeds, Link, NoInput, given, link};
use super::handle::{Handle, OptionalStep, Step};
use crate::graph::spec::Takes;

/// Steps that another step can run after: one handle, a tuple of up to 12, or a slice, by value or by reference.
#[diagnostic::on_unimplemented(
    message = "a step cannot run after `{Self}`",
    label = "not the handle of a step, nor a tuple or a slice of handles",
    note = "give what `p.step(..)`, `.then(..)` or `.branch(..)` returned: `p.after(&a)`, `p.after((&a, &b))`, \
            `p.after(&all)`"
)]
pub trait Upstreams {
    #[doc(hidden)]
    fn order(&self, builder: &PipelineBuilder) -> Vec<Link>;
}

impl<H: Handle> Upstreams for H {
    fn order(&self, builder: &PipelineBuilder) -> Vec<Link> {
        vec![link(self, Takes::Order, builder)]
    }
}

macro_rules! lists {
    ($([$($generics:tt)*] $list:ty;)*) => {
        $(impl<$($generics)*> Upstreams for $list {
            fn order(&self, builder: &PipelineBuilder) -> Vec<Link> {
                let of = |one| link(one, Takes::Order, builder);
                self.iter().map(of).collect()
            }
        })*
    };
}

lists! {
    [H: Handle] &[H];
    [H: Handle] Vec<H>;
    [H: Handle] &Vec<H>;
    [H: Handle, const LEN: usize] [H; LEN];
    [H: Handle, const LEN: usize] &[H; LEN];
}

macro_rules! tuples {
    ($($upstream:ident $at:tt),*) => {
        impl<$($upstream: Upstreams),*> Upstreams for ($($upstream,)*) {
            fn order(&self, builder: &PipelineBuilder) -> Vec<Link> {
                let mut links = Vec::new();
                $(links.extend(self.$at.order(builder));)*
                links
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

/// Upstream steps whose values the next step takes: see [`PipelineBuilder::after`].
#[derive(Debug)]
#[must_use = "declare the step that runs after these: `.step(..)` or `.branch(..)`"]
pub struct After<U> {
    builder: PipelineBuilder,
    upstreams: U,
    order: Vec<Link>,
}

impl<U: Upstreams> After<U> {
    pub(crate) fn new(builder: PipelineBuilder, upstreams: U) -> Self {
        Self {
            builder,
            upstreams,
            order: Vec::new(),
        }
    }

    /// Adds steps that the next step runs after without taking their values.
    pub fn following<O: Upstreams>(mut self, upstreams: O) -> Self {
        self.order.extend(upstreams.order(&self.builder));
        self
    }

    /// Declares the step that runs after the upstream steps and takes their values.
    pub fn step<J>(self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform,
        U: Feeds<J::Input>,
    {
        let upstream = self.upstream::<J>();
        self.builder.add(key, &job, upstream)
    }

    /// Declares a branch whose deciding job runs after the upstream steps and takes their values.
    pub fn branch<J, A>(self, key: &str, job: J, arms: A) -> A::Output
    where
        J: Perform<Output: Branch>,
        A: Arms<Of = J::Output>,
        U: Feeds<J::Input>,
    {
        let upstream = self.upstream::<J>();
        super::branch::declare(&self.builder, key, &job, upstream, arms)
    }

    fn upstream<J: Perform>(&self) -> Upstream
    where
        U: Feeds<J::Input>,
    {
        let mut upstream = given(&self.upstreams, &self.builder);
        upstream.links.extend(self.order.iter().cloned());
        upstream
    }
}

/// Upstream steps that the next step runs after without taking their values: see [`PipelineBuilder::following`].
#[derive(Debug)]
#[must_use = "declare the step that runs after these: `.step(..)` or `.branch(..)`"]
pub struct Following {
    builder: PipelineBuilder,
    links: Vec<Link>,
}

impl Following {
    pub(crate) fn new(builder: PipelineBuilder, upstreams: &impl Upstreams) -> Self {
        let links = upstreams.order(&builder);
        Self { builder, links }
    }

    /// Declares the step that runs after the upstream steps.
    pub fn step<J>(self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform<Input: NoInput>,
    {
        self.builder.add(key, &job, Upstream::all(self.links))
    }

    /// Declares a branch whose deciding job runs after the upstream steps.
    pub fn branch<J, A>(self, key: &str, job: J, arms: A) -> A::Output
    where
        J: Perform<Input: NoInput, Output: Branch>,
        A: Arms<Of = J::Output>,
    {
        super::branch::declare(&self.builder, key, &job, Upstream::all(self.links), arms)
    }
}

/// A step whose failure the next step waits for: see [`PipelineBuilder::after_failure`].
#[derive(Debug)]
#[must_use = "declare the step that runs after the failure: `.step(..)`"]
pub struct AfterFailure {
    builder: PipelineBuilder,
    link: Link,
}

impl AfterFailure {
    pub(crate) fn new(builder: PipelineBuilder, of: &impl Handle) -> Self {
        let link = link(of, Takes::Failure, &builder);
        Self { builder, link }
    }

    /// Declares the step that runs if the upstream step fails. Its job takes the [`Failure`](super::Failure) or
    /// nothing.
    pub fn step<J>(self, key: &str, job: J) -> OptionalStep<J::Output>
    where
        J: Perform<Input: FailureInput>,
    {
        let upstream = Upstream::all(vec![self.link]);
        self.builder.add(key, &job, upstream).may_be_absent()
    }
}

/// Steps of which the first to succeed gives the next step its input: see [`PipelineBuilder::after_any`].
#[derive(Debug)]
#[must_use = "declare the step that runs after the first of these: `.step(..)`"]
pub struct AfterAny<T> {
    builder: PipelineBuilder,
    links: Vec<Link>,
    gives: PhantomData<fn() -> T>,
}

impl<T: 'static> AfterAny<T> {
    pub(crate) fn new(
        builder: PipelineBuilder,
        of: impl IntoIterator<Item: Borrow<Step<T>>>,
    ) -> Self {
        let links = of
            .into_iter()
            .map(|one| link(one.borrow(), Takes::Value, &builder))
            .collect();
        Self {
            builder,
            links,
            gives: PhantomData,
        }
    }

    /// Declares the step that runs once one of the upstream steps has succeeded, and takes its value.
    pub fn step<J>(self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform<Input = T>,
    {
        self.builder.add(key, &job, Upstream::any(self.links))
    }
}
