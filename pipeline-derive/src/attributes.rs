//! Parses attributes such as `#[job(key = value, ..)]` and collects all mistakes in them.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Lit, LitInt, LitStr, Token};

/// The mistakes found so far.
#[derive(Default)]
pub(crate) struct Mistakes(Option<syn::Error>);

impl Mistakes {
    pub(crate) fn add(&mut self, mistake: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(mistake),
            None => self.0 = Some(mistake),
        }
    }

    /// Returns the value of a result, or notes its error.
    pub(crate) fn sift<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|mistake| self.add(mistake)).ok()
    }

    /// Returns the compile errors.
    pub(crate) fn tokens(&self) -> Option<TokenStream> {
        self.0.as_ref().map(syn::Error::to_compile_error)
    }

    #[cfg(test)]
    pub(crate) fn messages(self) -> Vec<String> {
        let each = self.0.into_iter().flatten();
        each.map(|mistake| mistake.to_string()).collect()
    }
}

/// One `key = value` of an attribute.
pub(crate) struct Entry {
    pub(crate) key: Ident,
    value: TokenStream,
}

/// Returns the entries of all attributes with this name.
pub(crate) fn entries(attrs: &[Attribute], name: &str, mistakes: &mut Mistakes) -> Vec<Entry> {
    let mut entries = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident(name)) {
        let list = attr
            .meta
            .require_list()
            .and_then(|list| list.parse_args_with(split));
        for part in mistakes.sift(list).unwrap_or_default() {
            entries.extend(mistakes.sift(syn::parse2(part)));
        }
    }
    entries
}

/// Parses the entries between the commas.
fn split(input: ParseStream<'_>) -> syn::Result<Vec<TokenStream>> {
    let mut parts = Vec::new();
    while !input.is_empty() {
        if input.peek(Token![,]) {
            return Err(input.error("expected a key before this comma"));
        }
        let mut part = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            part.extend([input.parse::<TokenTree>()?]);
        }
        parts.push(part);
        input.parse::<Option<Token![,]>>()?;
    }
    Ok(parts)
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.call(Ident::parse_any).map_err(|error| {
            syn::Error::new(error.span(), "expected a key, as in `key = value`")
        })?;
        // A key without `=` is no error here: the message must name the value that the key takes.
        if input.parse::<Option<Token![=]>>()?.is_none() {
            input.parse::<TokenStream>()?;
        }
        Ok(Self {
            key,
            value: input.parse()?,
        })
    }
}

impl Entry {
    /// Returns the value if it is a string. The error shows `example`, the correct form.
    pub(crate) fn string(&self, example: &str) -> syn::Result<LitStr> {
        match syn::parse2(self.value.clone()) {
            Ok(Lit::Str(literal)) => Ok(literal),
            _ => Err(self.wrong_kind("a string", example)),
        }
    }

    /// Returns the value if it is an integer. The error shows `example`, the correct form.
    pub(crate) fn integer(&self, example: &str) -> syn::Result<LitInt> {
        match syn::parse2(self.value.clone()) {
            Ok(Lit::Int(literal)) if literal.suffix().is_empty() => Ok(literal),
            _ => Err(self.wrong_kind("an integer", example)),
        }
    }

    fn wrong_kind(&self, kind: &str, example: &str) -> syn::Error {
        let place = if self.value.is_empty() {
            self.key.to_token_stream()
        } else {
            self.value.clone()
        };
        let key = &self.key;
        syn::Error::new_spanned(place, format!("`{key}` takes {kind}, as in `{example}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn read(attrs: &[Attribute]) -> (Vec<String>, Vec<String>) {
        let mut mistakes = Mistakes::default();
        let entries = entries(attrs, "job", &mut mistakes)
            .iter()
            .map(|entry| format!("{}: {}", entry.key, entry.value))
            .collect();
        (entries, mistakes.messages())
    }

    #[test]
    fn entries_of_all_attributes_are_gathered() {
        let (entries, mistakes) = read(&[
            parse_quote!(#[job(a = 1, crate = "x",)]),
            parse_quote!(#[doc = "not ours"]),
            parse_quote!(#[job()]),
            parse_quote!(#[job(b = -2)]),
        ]);
        assert_eq!(entries, ["a: 1", "crate: \"x\"", "b: - 2"]);
        assert!(mistakes.is_empty());
    }

    #[test]
    fn a_mistake_does_not_hide_the_next_entry() {
        let (entries, mistakes) = read(&[
            parse_quote!(#[job(5, a, b(1), c = 2)]),
            parse_quote!(#[job]),
            parse_quote!(#[job = "x"]),
            parse_quote!(#[job(, d = 3)]),
            parse_quote!(#[job(e = 4)]),
        ]);
        assert_eq!(entries, ["a: ", "b: ", "c: 2", "e: 4"]);
        assert_eq!(mistakes.len(), 4);
        assert_eq!(mistakes[0], "expected a key, as in `key = value`");
        assert_eq!(mistakes[3], "expected a key before this comma");
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        let entry = |tokens| syn::parse_str::<Entry>(tokens);
        for not_a_string in [
            "k",
            "k =",
            "k(\"x\")",
            "k = 5",
            "k = X",
            "k = b\"x\"",
            "k = \"a\" \"b\"",
        ] {
            let error = entry(not_a_string)
                .and_then(|e| e.string("k = \"x\""))
                .err();
            assert_eq!(
                error.map(|e| e.to_string()).as_deref(),
                Some("`k` takes a string, as in `k = \"x\"`")
            );
        }
        for not_an_integer in [
            "k",
            "k = \"5\"",
            "k = 5.0",
            "k = 5s",
            "k = 1 + 1",
            "k = true",
        ] {
            let error = entry(not_an_integer).and_then(|e| e.integer("k = 5")).err();
            assert_eq!(
                error.map(|e| e.to_string()).as_deref(),
                Some("`k` takes an integer, as in `k = 5`")
            );
        }
    }
}
