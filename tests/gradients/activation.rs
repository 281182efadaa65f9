//! Activations fused with a bias or a gate.

use sneppx::contract::Activation;

use super::differences::check;

const ALL: [Activation; 4] =
    [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu];

#[test]
fn an_activation_after_a_bias() {
    for activation in ALL {
        check("bias_activation", &[&[2, 3, 5], &[5]], |x| x[0].bias_activation(&x[1], activation));
    }
    for shapes in [[&[19][..], &[19]], [&[0, 3], &[3]], [&[3, 0], &[0]]] {
        check("bias_activation", &shapes, |x| x[0].bias_activation(&x[1], Activation::GeluTanh));
    }
}

#[test]
fn an_activation_times_a_gated_tensor() {
    for activation in ALL {
        check("gated_activation", &[&[3, 5], &[3, 5]], |x| {
            x[0].gated_activation(&x[1], activation)
        });
    }
    check("gated_activation", &[&[0, 5], &[0, 5]], |x| {
        x[0].gated_activation(&x[1], Activation::Silu)
    });
    check("gated_activation", &[&[2, 9]], |x| x[0].gated_activation(&x[0], Activation::Silu));
}
