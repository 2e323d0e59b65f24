//! `#[derive(Pipeline)]`: a params struct that gives its pipeline a stored name.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Fields, Path};

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
    let schema = mistakes.sift(schema_struct(input, pipeline.as_ref()));
    let implementation = pipeline.zip(schema).filter(|_| is_struct).map(|(pipeline, schema)| {
        quote! {
            impl #pipeline::declare::Named for #ident {
                const NAME: &'static str = #stored;

                fn schema() -> #pipeline::schemars::Schema {
                    #schema
                    #pipeline::schemars::schema_for!(Schema)
                }
            }

            impl #pipeline::jobs::Jobs for #ident {
                fn register(
                    registry: &mut #pipeline::jobs::Registering<'_>,
                ) -> #pipeline::jobs::Result<()> {
                    <<Self as #pipeline::declare::Define>::Jobs as #pipeline::jobs::Jobs>::register(registry)
                }

                fn contains(name: &str) -> bool {
                    <<Self as #pipeline::declare::Define>::Jobs as #pipeline::jobs::Jobs>::contains(name)
                }
            }
        }
    });
    let mistakes = mistakes.tokens();
    quote!(#implementation #mistakes)
}

/// A copy of the params struct that derives `JsonSchema`, so that the params themselves need not: its doc comments and
/// serde attributes say what the schema is.
fn schema_struct(input: &DeriveInput, pipeline: Option<&Path>) -> syn::Result<TokenStream> {
    let (Data::Struct(data), Some(pipeline)) = (&input.data, pipeline) else {
        return Ok(TokenStream::new());
    };
    let ident = &input.ident;
    let container: Vec<&Attribute> = input.attrs.iter().filter(|one| says_schema(one)).collect();
    let default = has_default(&container)?.then(|| default_of_copy(ident, &data.fields));
    let mut fields = data.fields.clone();
    for field in &mut fields {
        field.attrs.retain(says_schema);
        field.vis = syn::Visibility::Inherited;
    }
    let end = match &fields {
        Fields::Named(_) => None,
        Fields::Unnamed(_) | Fields::Unit => Some(quote!(;)),
    };
    let crate_path = quote!(#pipeline::schemars).to_string().replace(' ', "");
    let title = ident.unraw().to_string();
    Ok(quote! {
        #[derive(#pipeline::schemars::JsonSchema)]
        #[schemars(crate = #crate_path, rename = #title)]
        #(#container)*
        #[allow(dead_code)]
        struct Schema #fields #end
        #default
    })
}

fn says_schema(attribute: &Attribute) -> bool {
    ["doc", "serde", "schemars"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
}

/// Returns whether fields that are missing are those of the struct's `Default`.
fn has_default(container: &[&Attribute]) -> syn::Result<bool> {
    let mut found = false;
    for attribute in container.iter().filter(|one| one.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            let is_default = meta.path.is_ident("default");
            found |= is_default;
            if meta.input.peek(syn::Token![=]) {
                let value: syn::Expr = meta.value()?.parse()?;
                if is_default {
                    let message = "a pipeline's params take `#[serde(default)]`: implement `Default` for them";
                    return Err(syn::Error::new_spanned(value, message));
                }
            } else if meta.input.peek(syn::token::Paren) {
                let inner;
                syn::parenthesized!(inner in meta.input);
                inner.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn default_of_copy(ident: &syn::Ident, fields: &Fields) -> TokenStream {
    let members: Vec<syn::Member> = fields.members().collect();
    quote! {
        impl ::core::default::Default for Schema {
            fn default() -> Self {
                let params = <#ident as ::core::default::Default>::default();
                Self { #(#members: params.#members),* }
            }
        }
    }
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
