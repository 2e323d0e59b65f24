//! `#[derive(Pipeline)]`: a params struct that gives its pipeline a stored name.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Path};

use crate::attributes::{Mistakes, entries};
use crate::declared::{read_name, read_path};
use crate::name;

const KEYS: &str = "`name` and `crate`";

pub(crate) fn expand(
    input: &DeriveInput,
    find_pipeline: impl FnOnce() -> syn::Result<Path>,
) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let is_struct = mistakes.sift(check_type(input)).is_some();
    let mut stored = None;
    let mut path = None;
    for entry in entries(&input.attrs, "pipeline", &mut mistakes) {
        match entry.key.to_string().as_str() {
            "name" => stored = mistakes.sift(entry.string("name = \"video\"").and_then(read_name)),
            "crate" => {
                path = mistakes.sift(entry.string("crate = \"pipeline\"").and_then(read_path));
            }
            other => mistakes.add(syn::Error::new(
                entry.key.span(),
                format!("`#[pipeline(..)]` knows no `{other}`: it takes {KEYS}"),
            )),
        }
    }
    let stored = stored.unwrap_or_else(|| name::snake_case(&input.ident.unraw().to_string()));
    let pipeline = match path {
        Some(path) => Some(path),
        None => mistakes.sift(find_pipeline()),
    };
    let ident = &input.ident;
    let implementation = pipeline.filter(|_| is_struct).map(|pipeline| {
        quote! {
            impl #pipeline::declare::Named for #ident {
                const NAME: &'static str = #stored;
            }
        }
    });
    let mistakes = mistakes.tokens();
    quote!(#implementation #mistakes)
}

fn check_type(input: &DeriveInput) -> syn::Result<()> {
    if !matches!(input.data, Data::Struct(_)) {
        let message = "a pipeline's params are a struct";
        return Err(syn::Error::new_spanned(&input.ident, message));
    }
    if !input.generics.params.is_empty() {
        let message = "a pipeline has one stable name: derive it on a struct without parameters";
        return Err(syn::Error::new_spanned(&input.generics, message));
    }
    Ok(())
}
