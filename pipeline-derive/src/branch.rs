//! `#[derive(Branch)]`: implements `Branch` for an enum, and generates the struct with a closure for each arm.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Data, DataEnum, DeriveInput, Ident, Path};

use crate::attributes::Mistakes;
use crate::name;

pub(crate) fn expand(
    input: &DeriveInput,
    find_pipeline: impl FnOnce() -> syn::Result<Path>,
) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let arms = mistakes.sift(check(input));
    let pipeline = mistakes.sift(find_pipeline());
    let implementation = arms
        .zip(pipeline)
        .map(|(arms, pipeline)| implement(input, arms, &pipeline));
    let mistakes = mistakes.tokens();
    quote!(#implementation #mistakes)
}

fn check(input: &DeriveInput) -> syn::Result<&DataEnum> {
    let Data::Enum(data) = &input.data else {
        let message = "a branch is chosen by an enum: one variant for each arm";
        return Err(syn::Error::new_spanned(&input.ident, message));
    };
    if !input.generics.params.is_empty() {
        let message = "a branch has a fixed set of arms: derive it on an enum without parameters";
        return Err(syn::Error::new_spanned(&input.generics, message));
    }
    if data.variants.is_empty() {
        let message = "a branch needs at least one arm: give the enum a variant";
        return Err(syn::Error::new_spanned(&input.ident, message));
    }
    for variant in &data.variants {
        if !matches!(variant.fields, syn::Fields::Unit) {
            let message = "an arm is chosen by a variant alone: leave its data out, and give it to the \
                           steps of the arm by another way";
            return Err(syn::Error::new_spanned(&variant.fields, message));
        }
    }
    let attributes = data.variants.iter().flat_map(|variant| &variant.attrs);
    for attribute in input.attrs.iter().chain(attributes) {
        refuse_renaming(attribute)?;
    }
    Ok(data)
}

/// Refuses serde attributes that rename variants: the arm is chosen by the variant's name in the stored value.
fn refuse_renaming(attribute: &Attribute) -> syn::Result<()> {
    if !attribute.path().is_ident("serde") {
        return Ok(());
    }
    let text = quote!(#attribute).to_string();
    let renames = [
        "rename", "tag", "untagged", "content", "into", "from", "with",
    ];
    if renames.iter().any(|word| {
        text.split(|c: char| !c.is_alphanumeric())
            .any(|w| w.starts_with(word))
    }) {
        let message = "the arms are told apart by the names of the variants as serde writes them by \
                       itself: leave out what renames or reshapes them";
        return Err(syn::Error::new_spanned(attribute, message));
    }
    Ok(())
}

fn implement(input: &DeriveInput, data: &DataEnum, pipeline: &Path) -> TokenStream {
    let (name, visibility) = (&input.ident, &input.vis);
    let arms_name = format_ident!("{}Arms", name.unraw());
    let variants: Vec<String> = data
        .variants
        .iter()
        .map(|v| v.ident.unraw().to_string())
        .collect();
    let fields: Vec<Ident> = variants.iter().map(|variant| field(variant)).collect();
    let closures: Vec<Ident> = variants.iter().map(|v| format_ident!("{v}")).collect();
    let results: Vec<Ident> = variants
        .iter()
        .map(|v| format_ident!("{v}Result"))
        .collect();
    let arms_doc = format!("The arms that [`{name}`] chooses between: a closure for each variant.");
    let field_docs = variants
        .iter()
        .map(|v| format!("Declares the steps of the arm `{v}`."));

    // (((R1 joins R2) joins R3) ..): each result must join the ones before it.
    let mut together = {
        let first = &results[0];
        quote!(#first)
    };
    let mut bounds = Vec::new();
    for result in &results[1..] {
        bounds.push(quote!(#together: #pipeline::declare::Joins<#result>));
        together = quote!(<#together as #pipeline::declare::Joins<#result>>::Output);
    }
    bounds.push(quote!(#together: #pipeline::declare::Merged));

    quote! {
        impl #pipeline::declare::Branch for #name {
            const ARMS: &'static [&'static str] = &[#(#variants),*];
        }

        #[doc = #arms_doc]
        #[derive(Debug, Clone, Copy)]
        #visibility struct #arms_name<#(#closures),*> {
            #(#[doc = #field_docs] pub #fields: #closures,)*
        }

        impl<#(#closures, #results),*> #pipeline::declare::Arms for #arms_name<#(#closures),*>
        where
            #(#closures: ::core::ops::FnOnce() -> #results,)*
            #(#results: #pipeline::declare::ArmResult,)*
            #(#bounds,)*
        {
            type Of = #name;
            type Output = <#together as #pipeline::declare::Merged>::Handle;

            fn declare(self, branch: &mut #pipeline::declare::BranchBuilder<'_>) -> Self::Output {
                #(let _ = branch.arm(#variants, self.#fields);)*
                <#together as #pipeline::declare::Merged>::merge(branch)
            }
        }
    }
}

/// Returns the field of an arm: the variant in snake case, as a raw identifier if that is a keyword.
fn field(variant: &str) -> Ident {
    let snake = name::snake_case(variant);
    syn::parse_str::<Ident>(&snake).unwrap_or_else(|_| format_ident!("r#{snake}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(input: &DeriveInput) -> String {
        match check(input) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_an_enum_with_plain_variants_is_a_branch() {
        assert_eq!(
            message(&syn::parse_quote!(
                enum Format {
                    Hd,
                    Sd,
                }
            )),
            ""
        );
        assert!(
            message(&syn::parse_quote!(
                struct Format;
            ))
            .contains("an enum")
        );
        assert!(
            message(&syn::parse_quote!(
                enum Format {}
            ))
            .contains("at least one arm")
        );
        assert!(
            message(&syn::parse_quote!(
                enum Format<T> {
                    A(T),
                }
            ))
            .contains("without parameters")
        );
        assert!(
            message(&syn::parse_quote!(
                enum Format {
                    Hd(u32),
                    Sd,
                }
            ))
            .contains("leave its data out")
        );
        let renamed = syn::parse_quote!(
            #[serde(rename_all = "snake_case")]
            enum Format {
                Hd,
            }
        );
        assert!(message(&renamed).contains("names of the variants"));
        let variant = syn::parse_quote!(
            enum Format {
                #[serde(rename = "x")]
                Hd,
            }
        );
        assert!(message(&variant).contains("names of the variants"));
    }

    #[test]
    fn fields_are_variants_in_snake_case() {
        assert_eq!(field("FullHd").to_string(), "full_hd");
        assert_eq!(field("Type").to_string(), "r#type");
    }
}
