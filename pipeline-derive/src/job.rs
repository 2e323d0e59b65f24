//! `#[derive(Job)]`: the code that it generates.

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Path};

use crate::attributes::Mistakes;
use crate::declared::{Declared, Given};
use crate::{duration, name};

/// Generates the implementation of `Job` and the compile errors of all mistakes. If possible, the implementation is
/// generated in spite of mistakes, so that the compiler does not also report a missing implementation.
pub(crate) fn expand(
    input: &DeriveInput,
    find_jobs: impl FnOnce() -> syn::Result<Path>,
) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let can_be_a_job = mistakes.sift(check_type(input)).is_some();
    check_places(&input.data, &mut mistakes);
    let declared = Declared::read(&input.attrs, &mut mistakes);
    let stored_name = match &declared.name {
        Given::Value(name) => name.clone(),
        Given::Wrong => String::new(),
        Given::Absent => mistakes.sift(default_name(input)).unwrap_or_default(),
    };
    let jobs = match &declared.jobs {
        Given::Value(path) => Some(path.clone()),
        Given::Wrong => None,
        Given::Absent => mistakes.sift(find_jobs()),
    };
    let implementation = jobs
        .filter(|_| can_be_a_job)
        .map(|jobs| implement(input, &stored_name, &declared, &jobs));
    let mistakes = mistakes.tokens();
    quote!(#implementation #mistakes)
}

fn check_type(input: &DeriveInput) -> syn::Result<()> {
    if let Data::Union(union) = &input.data {
        let message = "a job is a struct or an enum";
        return Err(syn::Error::new_spanned(union.union_token, message));
    }
    if !input.generics.params.is_empty() {
        let message = "a job has one stable name; a generic type would be many jobs under it: \
                       derive it on a type without parameters";
        return Err(syn::Error::new_spanned(&input.generics, message));
    }
    Ok(())
}

/// Reports `#[job(..)]` on fields and variants, where it would have no effect.
fn check_places(data: &Data, mistakes: &mut Mistakes) {
    let mut check = |attrs: &[Attribute]| {
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("job")) {
            let message = "`#[job(..)]` belongs on the type itself";
            mistakes.add(syn::Error::new_spanned(attr, message));
        }
    };
    match data {
        Data::Struct(data) => data.fields.iter().for_each(|field| check(&field.attrs)),
        Data::Enum(data) => {
            for variant in &data.variants {
                check(&variant.attrs);
                variant.fields.iter().for_each(|field| check(&field.attrs));
            }
        }
        Data::Union(_) => {}
    }
}

fn default_name(input: &DeriveInput) -> syn::Result<String> {
    let default = name::snake_case(&input.ident.unraw().to_string());
    if name::is_valid(&default) {
        return Ok(default);
    }
    let message = format!(
        "the type's name becomes {default:?}, which cannot be stored: {}; \
         give it another with `#[job(name = \"..\")]`",
        name::RULE
    );
    Err(syn::Error::new(input.ident.span(), message))
}

fn implement(
    input: &DeriveInput,
    stored_name: &str,
    declared: &Declared,
    jobs: &Path,
) -> TokenStream {
    let ident = &input.ident;
    let where_clause = &input.generics.where_clause;
    let version = declared.version.value().map(|version| {
        let version = Literal::u32_unsuffixed(*version);
        quote!(const VERSION: ::core::primitive::u32 = #version;)
    });
    let changes = changed_options(declared, jobs);
    let options = (!changes.is_empty())
        .then(|| quote!(const OPTIONS: #jobs::JobOptions = #jobs::JobOptions::DEFAULT #changes;));
    quote! {
        #[automatically_derived]
        impl #jobs::Job for #ident #where_clause {
            const NAME: &'static ::core::primitive::str = #stored_name;
            #version
            #options
        }
    }
}

/// Returns the calls that change the default options to the declared ones.
fn changed_options(declared: &Declared, jobs: &Path) -> TokenStream {
    let queue = declared.queue.value().map(|queue| quote!(.queue(#queue)));
    let priority = declared.priority.value().map(|priority| {
        let priority = Literal::i16_unsuffixed(*priority);
        quote!(.priority(#priority))
    });
    let max_attempts = declared.max_attempts.value().map(|max_attempts| {
        let max_attempts = Literal::u16_unsuffixed(*max_attempts);
        quote!(.max_attempts(#max_attempts))
    });
    let backoff = declared.backoff.value().map(|backoff| {
        let backoff = backoff.tokens(jobs);
        quote!(.backoff(#backoff))
    });
    let timeout = declared.timeout.value().map(|timeout| {
        let timeout = duration::tokens(*timeout);
        quote!(.timeout(#timeout))
    });
    let lease = declared.lease.value().map(|lease| {
        let lease = duration::tokens(*lease);
        quote!(.lease(#lease))
    });
    quote!(#queue #priority #max_attempts #backoff #timeout #lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn expanded(input: DeriveInput) -> String {
        expand(&input, || Ok(parse_quote!(::jobs))).to_string()
    }

    #[test]
    fn without_attributes_only_the_name_is_said() {
        let bare = |ident: TokenStream| {
            quote! {
                #[automatically_derived]
                impl ::jobs::Job for #ident {
                    const NAME: &'static ::core::primitive::str = "transcode";
                }
            }
            .to_string()
        };
        assert_eq!(
            expanded(parse_quote!(
                struct Transcode;
            )),
            bare(quote!(Transcode))
        );
        assert_eq!(
            expanded(parse_quote!(
                struct Transcode(u8);
            )),
            bare(quote!(Transcode))
        );
        assert_eq!(
            expanded(parse_quote!(
                struct Transcode {
                    a: u8,
                }
            )),
            bare(quote!(Transcode))
        );
        assert_eq!(
            expanded(parse_quote!(
                enum Transcode {
                    A,
                    B(u8),
                }
            )),
            bare(quote!(Transcode))
        );
        assert_eq!(
            expanded(parse_quote!(
                struct r#transcode;
            )),
            bare(quote!(r#transcode))
        );
    }

    #[test]
    fn each_attribute_becomes_one_call() {
        let code = expanded(parse_quote! {
            #[job(
                name = "media.transcode",
                version = 2,
                queue = "media",
                priority = -10,
                max_attempts = 5,
                backoff = "exponential(1s..60s, jitter 0.2)",
                timeout = "10m",
                lease = "1m30s"
            )]
            struct Transcode;
        });
        let priority = Literal::i16_unsuffixed(-10);
        let expected = quote! {
            #[automatically_derived]
            impl ::jobs::Job for Transcode {
                const NAME: &'static ::core::primitive::str = "media.transcode";
                const VERSION: ::core::primitive::u32 = 2;
                const OPTIONS: ::jobs::JobOptions = ::jobs::JobOptions::DEFAULT
                    .queue("media")
                    .priority(#priority)
                    .max_attempts(5)
                    .backoff(
                        ::jobs::Backoff::exponential(
                            ::core::time::Duration::from_millis(1000),
                            ::core::time::Duration::from_millis(60000)
                        )
                        .jitter(0.2)
                    )
                    .timeout(::core::time::Duration::from_millis(600000))
                    .lease(::core::time::Duration::from_millis(90000));
            }
        };
        assert_eq!(code, expected.to_string());
    }

    #[test]
    fn attributes_may_be_spread_and_the_crate_may_be_elsewhere() {
        let input = parse_quote! {
            #[job(queue = "media", crate = "crate::vendored::jobs")]
            #[doc = "In between."]
            #[job(max_attempts = 1)]
            struct Transcode;
        };
        let not_asked = || Err(syn::Error::new(proc_macro2::Span::call_site(), "asked"));
        let expected = quote! {
            #[automatically_derived]
            impl crate::vendored::jobs::Job for Transcode {
                const NAME: &'static ::core::primitive::str = "transcode";
                const OPTIONS: crate::vendored::jobs::JobOptions =
                    crate::vendored::jobs::JobOptions::DEFAULT.queue("media").max_attempts(1);
            }
        };
        assert_eq!(expand(&input, not_asked).to_string(), expected.to_string());
    }

    #[test]
    fn a_mistake_leaves_the_rest_of_the_implementation() {
        let code = expanded(parse_quote! {
            #[job(max_attempts = 0, queue = "media")]
            struct Transcode;
        });
        assert!(code.contains("DEFAULT . queue (\"media\") ;"), "{code}");
        assert!(code.contains("a job has at least one attempt"), "{code}");
    }

    #[test]
    fn what_cannot_be_a_job_gets_no_implementation() {
        for (input, message) in [
            (
                parse_quote!(
                    struct Transcode<T>(T);
                ),
                "derive it on a type without parameters",
            ),
            (
                parse_quote!(
                    enum Transcode<'a> {
                        A(&'a str),
                    }
                ),
                "derive it on a type without parameters",
            ),
            (
                parse_quote!(
                    struct Transcode<const N: usize>;
                ),
                "derive it on a type without parameters",
            ),
            (
                parse_quote!(union Transcode { a: u8 }),
                "a job is a struct or an enum",
            ),
        ] {
            let code = expanded(input);
            assert!(code.contains(message), "{code}");
            assert!(!code.contains("impl"), "{code}");
        }
    }

    #[test]
    fn an_attribute_on_a_field_or_a_variant_is_refused() {
        for input in [
            parse_quote!(
                struct Transcode {
                    #[job(queue = "media")]
                    a: u8,
                }
            ),
            parse_quote!(
                enum Transcode {
                    #[job(queue = "media")]
                    A,
                }
            ),
            parse_quote!(
                enum Transcode {
                    A(#[job(queue = "media")] u8),
                }
            ),
        ] {
            let code = expanded(input);
            assert!(code.contains("belongs on the type itself"), "{code}");
        }
    }

    #[test]
    fn a_type_name_that_cannot_be_stored_needs_another() {
        let code = expanded(parse_quote!(
            struct Größe;
        ));
        assert!(code.contains("the type's name becomes"), "{code}");
        let code = expanded(parse_quote!(
            #[job(name = "size")]
            struct Größe;
        ));
        assert!(!code.contains("compile_error"), "{code}");
    }
}
