//! Rows chosen by index, and sums into chosen rows.

use sneppx::Result;

use super::differences::{T, check, device};

fn indices(values: &[i64], like: &T) -> Result<T> {
    T::from_slice(like.device(), values, &[values.len()])
}

#[test]
fn chosen_slices() {
    for dim in 0..3 {
        check("index_select", &[&[3, 3, 3]], |x| {
            x[0].index_select(dim, &indices(&[2, 0, 2, 1], &x[0])?)
        });
    }
    check("index_select", &[&[3, 2]], |x| x[0].index_select(0, &indices(&[], &x[0])?));
    check("index_select", &[&[4, 5]], |x| {
        let tokens = T::from_slice(x[0].device(), &[1u32, 3, 3, 0, 1, 1], &[2, 3])?;
        x[0].embedding(&tokens)
    });
}

#[test]
fn sums_into_slices() {
    for dim in 0..2 {
        check("index_add", &[&[3, 3], &[3, 3]], |x| {
            x[0].index_add(dim, &indices(&[2, 0, 2], &x[0])?, &x[1])
        });
    }
    check("index_add", &[&[4, 2], &[0, 2]], |x| x[0].index_add(0, &indices(&[], &x[0])?, &x[1]));
    check("index_add", &[&[2, 3, 2], &[2, 5, 2]], |x| {
        x[0].index_add(1, &indices(&[1, 1, 0, 2, 1], &x[0])?, &x[1])
    });
}

#[test]
fn elements_of_the_last_dimension() {
    check("index_select", &[&[2, 4]], |x| {
        x[0].gather(&T::from_slice(x[0].device(), &[3u32, 0, 3, 1, 1, 2], &[2, 3])?)
    });
    check("index_add", &[&[2, 4], &[2, 3]], |x| {
        let places = T::from_slice(x[0].device(), &[3i64, 0, 3, 1, 1, 2], &[2, 3])?;
        x[0].scatter_add(&places, &x[1])
    });
}

#[test]
fn an_index_outside_is_named_with_its_place() -> Result<()> {
    let device = device();
    let table = T::from_slice(&device, &[0.0; 6], &[3, 2])?;
    for (index, place) in [(3, 1), (-1, 1), (i64::from(u32::MAX) + 1, 1)] {
        let bad = T::from_slice(&device, &[0, index], &[2])?;
        for error in [
            table.index_select(0, &bad).unwrap_err(),
            table.embedding(&bad).unwrap_err(),
            table.index_add(0, &bad, &T::from_slice(&device, &[0.0; 4], &[2, 2])?).unwrap_err(),
        ] {
            let text = error.to_string();
            let want = format!("index {index} at position {place} is outside 0..3");
            assert!(text.contains(&want), "{text}");
        }
        let bad = T::from_slice(&device, &[0, index, 0], &[3, 1])?;
        let text = table.gather(&bad).unwrap_err().to_string();
        assert!(text.contains(&format!("index {index} at position 1 is outside 0..2")), "{text}");
    }
    Ok(())
}

/// The gradient of the source comes as a transposed tensor, to which operations that want rows add.
#[test]
fn a_transposed_gradient_can_be_added_to() {
    check("index_add", &[&[2, 3, 4], &[2, 2, 4], &[4, 4]], |x| {
        let early = x[1].linear(&x[2], None)?.layer_norm(None, None, 1e-3)?.add(&x[1])?;
        let late = x[0].index_add(1, &indices(&[2, 0], &x[0])?, &x[1])?;
        early.sum(&[1])?.unsqueeze(1)?.mul(&late)
    });
}
