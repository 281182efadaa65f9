//! Matrix products and the linear map.

use super::differences::check;

#[test]
fn products_of_matrices() {
    let pairs: [[&[usize]; 2]; 9] = [
        [&[3, 4], &[4, 5]],
        [&[1, 1], &[1, 1]],
        [&[2, 3, 4], &[2, 4, 2]],
        [&[2, 3, 4], &[4, 2]],
        [&[3, 4], &[2, 4, 2]],
        [&[2, 1, 2, 3], &[3, 3, 2]],
        [&[3, 0], &[0, 2]],
        [&[0, 3], &[3, 2]],
        [&[2, 19], &[19, 17]],
    ];
    for shapes in pairs {
        check("matmul", &shapes, |x| x[0].matmul(&x[1]));
    }
    check("matmul", &[&[3, 2], &[3, 4]], |x| x[0].transpose(0, 1)?.matmul(&x[1]));
    check("matmul", &[&[3, 3]], |x| x[0].matmul(&x[0]));
    check("matmul", &[&[3, 2]], |x| x[0].matmul(&x[0].transpose(0, 1)?));
}

#[test]
fn linear_maps() {
    check("linear", &[&[2, 3, 5], &[7, 5], &[7]], |x| x[0].linear(&x[1], Some(&x[2])));
    check("linear", &[&[2, 3, 5], &[7, 5]], |x| x[0].linear(&x[1], None));
    check("linear", &[&[5], &[7, 5], &[7]], |x| x[0].linear(&x[1], Some(&x[2])));
    check("linear", &[&[0, 5], &[2, 5], &[2]], |x| x[0].linear(&x[1], Some(&x[2])));
    check("linear", &[&[2, 0], &[3, 0], &[3]], |x| x[0].linear(&x[1], Some(&x[2])));
    check("linear", &[&[2, 3], &[3, 3], &[3]], |x| {
        x[0].linear(&x[1], Some(&x[2]))?.linear(&x[1], Some(&x[2]))
    });
    check("linear", &[&[3, 3]], |x| x[0].linear(&x[0], None));
}
