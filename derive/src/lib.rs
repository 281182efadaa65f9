//! `#[derive(Module)]`: walks the parameters of a model in declaration order.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{
    Data, DeriveInput, Error, Fields, GenericParam, Ident, Result, Type, parse_macro_input,
    spanned::Spanned,
};

/// Implements `sneppx::nn::Module` for a struct with named fields.
///
/// The first type parameter is the device unless `#[module(device = Name)]` names another type.
/// Fields of plain number, `bool` or `String` type are passed over; `#[module(skip)]` passes over
/// any other. Every remaining field must be a module itself.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "Module can be derived for structs only"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(input.span(), "Module needs named fields: they become paths"));
    };
    let device = device_of(input)?;
    let mut visits = Vec::new();
    for field in &fields.named {
        let Some(name) = &field.ident else { continue };
        if is_plain(&field.ty) || is_skipped(field)? {
            continue;
        }
        let text = name.to_string();
        let text = text.strip_prefix("r#").unwrap_or(&text);
        visits.push(quote! {
            ::sneppx::nn::Module::<#device>::visit(
                &self.#name,
                &::sneppx::nn::join_path(path, #text),
                visitor,
            );
        });
    }
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::sneppx::nn::Module<#device> for #name #type_generics #where_clause {
            fn visit(
                &self,
                path: &str,
                visitor: &mut dyn FnMut(&str, &::sneppx::nn::Param<#device>),
            ) {
                let _ = (path, &visitor);
                #(#visits)*
            }
        }
    })
}

/// The type of the device: named by an attribute, or the first type parameter.
fn device_of(input: &DeriveInput) -> Result<Tokens> {
    let mut named = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("device") {
                return Err(meta.error("expected `device = Type`"));
            }
            let device: Type = meta.value()?.parse()?;
            named = Some(quote!(#device));
            Ok(())
        })?;
    }
    if let Some(named) = named {
        return Ok(named);
    }
    let first = input.generics.params.iter().find_map(|param| match param {
        GenericParam::Type(param) => Some(&param.ident),
        _ => None,
    });
    match first {
        Some(ident) => Ok(quote!(#ident)),
        None => Err(Error::new(
            input.span(),
            "Module needs a device: a first type parameter, or #[module(device = Type)]",
        )),
    }
}

/// Whether a type is known to hold no parameters by its name alone.
fn is_plain(ty: &Type) -> bool {
    const PLAIN: [&str; 10] =
        ["bool", "u8", "u32", "u64", "usize", "i32", "i64", "f32", "f64", "String"];
    let Type::Path(path) = ty else { return false };
    let ident: Option<&Ident> = path.path.get_ident();
    ident.is_some_and(|ident| PLAIN.iter().any(|plain| ident == plain))
}

fn is_skipped(field: &syn::Field) -> Result<bool> {
    let mut skipped = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("skip") {
                return Err(meta.error("expected `skip`"));
            }
            skipped = true;
            Ok(())
        })?;
    }
    Ok(skipped)
}
