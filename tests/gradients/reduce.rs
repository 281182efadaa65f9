//! Sums, means, extremes and softmax.

use sneppx::contract::ReduceKind;
use sneppx::{Result, Tensor};

use super::differences::{T, check, device};

#[test]
fn sums_and_means() {
    for dims in [&[][..], &[0], &[1], &[2], &[0, 2], &[0, 1, 2]] {
        check("sum", &[&[2, 3, 4]], |x| x[0].sum(dims));
        check("sum", &[&[2, 3, 4]], |x| x[0].mean(dims));
        check("sum", &[&[2, 3, 4]], |x| x[0].reduce(ReduceKind::Sum, dims));
    }
    check("sum", &[&[0, 3]], |x| x[0].sum(&[0]));
    check("sum", &[&[3, 2]], |x| x[0].sum_all());
    check("sum", &[&[]], |x| x[0].mean_all());
    check("sum", &[&[3, 2]], |x| x[0].square()?.mean_all());
}

#[test]
fn extremes() {
    for dims in [&[][..], &[0], &[2], &[0, 2], &[0, 1, 2]] {
        check("extreme", &[&[2, 3, 4]], |x| x[0].max(dims));
        check("extreme", &[&[2, 1, 4]], |x| x[0].min(dims));
    }
    check("extreme", &[&[0, 3]], |x| x[0].max(&[1]));
}

#[test]
fn equal_extremes_share_the_gradient() -> Result<()> {
    let x = T::from_slice(&device(), &[1.0, 3.0, 3.0, 2.0, 2.0, 2.0], &[2, 3])?.requires_grad()?;
    x.max(&[1])?.sum_all()?.backward()?;
    let third = 1.0 / 3.0;
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [0.0, 0.5, 0.5, third, third, third]);
    Ok(())
}

#[test]
fn softmax_and_its_logarithm() {
    for shape in [&[2, 3, 5][..], &[7], &[2, 1], &[0, 3], &[1, 40]] {
        check("softmax", &[shape], |x| x[0].softmax());
        check("sub", &[shape], |x| x[0].log_softmax());
    }
    check("softmax", &[&[2, 3, 4]], |x| x[0].transpose(1, 2)?.softmax()?.transpose(1, 2));
}

#[test]
fn num_03_softmax_at_the_edges() -> Result<()> {
    let device = device();
    let infinity = f32::INFINITY;
    let rows = [
        (vec![-1e30f32, -1e30], vec![0.5, 0.5]),
        (vec![-1000.0, -1001.0], vec![0.731_058_6, 0.268_941_4]),
        (vec![-3e38, 3e38], vec![0.0, 1.0]),
        (vec![-infinity, 0.0], vec![0.0, 1.0]),
        (vec![10_000.0, 9_999.0, -10_000.0], vec![0.731_058_6, 0.268_941_4, 0.0]),
    ];
    let hold = |what: &str, got: &[f32], want: &[f64]| {
        for (got, want) in got.iter().zip(want) {
            assert!((f64::from(*got) - want).abs() < 1e-6, "{what}: {got}, want {want}");
        }
    };
    for (row, want) in &rows {
        let x = Tensor::from_slice(&device, row, &[row.len()])?;
        hold(&format!("{row:?}"), &x.softmax()?.to_vec::<f32>()?, want);
        let log = x.log_softmax()?.exp()?.to_vec::<f32>()?;
        hold(&format!("log of {row:?}"), &log, want);
    }
    // Rows of one matrix do not feel one another.
    let (matrix, want): (Vec<f32>, Vec<f64>) = rows[..4]
        .iter()
        .flat_map(|(row, want)| row.iter().copied().zip(want.iter().copied()))
        .unzip();
    let together = Tensor::from_slice(&device, &matrix, &[4, 2])?.softmax()?.to_vec::<f32>()?;
    hold("one matrix", &together, &want);
    Ok(())
}
