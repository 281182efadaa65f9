//! Buffers, the pool behind them, and what may overlap what.

use sneppx_contract::{
    BinaryOp, Buffer, DType, Error, HostSlice, HostVec, Kernels, Layout, Memory, Shape, View,
};
use sneppx_cpu::{Cpu, CpuBuffer, CpuOptions};

fn device() -> Cpu {
    Cpu::new(CpuOptions { threads: Some(2) }).unwrap()
}

#[test]
fn live_bytes_and_system_allocations_are_flat_over_steps() {
    let device = device();
    let step = |device: &Cpu| {
        let weights = device.alloc(DType::F32, 300 * 200).unwrap();
        let activations: Vec<CpuBuffer> =
            (1..9).map(|layer| device.alloc(DType::F32, layer * 10_000).unwrap()).collect();
        let square = Layout::contiguous(Shape::new(&[100, 100]).unwrap());
        let (x, out) = (View::new(&activations[0], square), View::new(&activations[1], square));
        device.fill(1.0, View::whole(&weights)).unwrap();
        device.matmul(1.0, x, x, 0.0, out).unwrap();
    };
    step(&device);
    let first = device.memory();
    assert_eq!(first.live_bytes, 0);
    assert_eq!(first.peak_bytes, 4 * (60_000 + 360_000));
    for _ in 0..100 {
        step(&device);
    }
    assert_eq!(device.memory(), first);
}

#[test]
fn the_peak_can_be_reset_and_clones_share_the_pool() {
    let device = device();
    let kept = device.clone().alloc(DType::F64, 1000).unwrap();
    drop(device.alloc(DType::F64, 5000).unwrap());
    assert_eq!((device.memory().live_bytes, device.memory().peak_bytes), (8000, 48_000));
    device.reset_peak();
    assert_eq!(device.memory().peak_bytes, 8000);
    assert!(device.memory().pooled_bytes >= 40_000);
    device.trim();
    assert_eq!(device.memory().pooled_bytes, 0);
    drop(kept);
    assert_eq!(device.memory().live_bytes, 0);
}

#[test]
fn a_buffer_lives_as_long_as_its_last_handle() {
    let device = device();
    let first = device.alloc(DType::U8, 100).unwrap();
    let second = first.clone();
    assert!(first.same_memory(&second));
    drop(first);
    assert_eq!(device.memory().live_bytes, 100);
    drop(device.clone());
    drop(device);
    assert_eq!(second.read::<u8>().unwrap().len(), 100);
}

#[test]
fn a_buffer_in_use_is_refused_by_name() {
    let device = device();
    let x = device.upload(HostSlice::F32(&[1.0, 2.0])).unwrap();
    let out = device.alloc(DType::F32, 2).unwrap();
    let (x_view, out_view) = (View::whole(&x), View::whole(&out));
    let reader = x.read::<f32>().unwrap();
    device.copy(x_view, out_view).unwrap();
    let error = device.fill(0.0, x_view).unwrap_err();
    assert!(matches!(error, Error::BufferInUse { operation: "fill", bytes: 8 }), "{error}");
    drop(reader);
    let writer = x.write::<f32>().unwrap();
    let error = device.copy(x_view, out_view).unwrap_err();
    assert!(matches!(error, Error::BufferInUse { operation: "copy", bytes: 8 }), "{error}");
    assert!(device.download(&x).is_err());
    drop(writer);
    device.fill(3.0, x_view).unwrap();
    assert_eq!(device.download(&x).unwrap(), HostVec::F32(vec![3.0, 3.0]));
}

#[test]
fn an_output_may_be_the_view_of_an_input_and_nothing_between() {
    let device = device();
    let x = device.upload(HostVec::from_f64(DType::F32, &[1.0; 3000]).as_slice()).unwrap();
    let whole = View::whole(&x);
    device.binary(BinaryOp::Add, whole, whole, whole).unwrap();
    device.scaled_add(1.0, whole, 1.0, whole).unwrap();
    assert_eq!(device.download(&x).unwrap().to_f64(), [4.0; 3000]);

    let part = |offset| View::new(&x, Layout::flat(offset, 1500));
    device.binary(BinaryOp::Add, part(0), part(0), part(1500)).unwrap();
    assert_eq!(device.read(&x, 1499..1501).unwrap().to_f64(), [4.0, 8.0]);
    for error in [
        device.binary(BinaryOp::Add, part(0), part(0), part(1)).unwrap_err(),
        device.copy(part(0), part(1499)).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(message.contains("overlaps the output"), "{message}");
    }
    let square = View::new(&x, Layout::contiguous(Shape::new(&[50, 50]).unwrap()));
    let error = device.matmul(1.0, square, square, 0.0, square).unwrap_err().to_string();
    assert!(error.contains("matmul") && error.contains("overlaps"), "{error}");
}

#[test]
fn columns_of_one_buffer_may_be_read_while_others_are_written() {
    let device = device();
    let x = device.upload(HostSlice::F32(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
    let column = |at| View::new(&x, Layout::strided(&[3], &[2], at).unwrap());
    device.copy(column(0), column(1)).unwrap();
    assert_eq!(device.download(&x).unwrap().to_f64(), [1.0, 1.0, 3.0, 3.0, 5.0, 5.0]);
}

#[test]
fn views_that_do_not_fit_or_disagree_are_refused() {
    let device = device();
    let x = device.alloc(DType::F32, 6).unwrap();
    let y = device.alloc(DType::F64, 6).unwrap();
    let short = View::new(&x, Layout::flat(0, 5));
    let beyond = View::new(&x, Layout::flat(2, 5));
    let repeated = View::new(&x, Layout::strided(&[6], &[0], 0).unwrap());
    assert!(matches!(device.copy(View::whole(&x), short), Err(Error::Shape { .. })));
    assert!(matches!(device.fill(0.0, beyond), Err(Error::Shape { .. })));
    assert!(matches!(device.fill(0.0, repeated), Err(Error::Shape { .. })));
    let (x, y) = (View::whole(&x), View::whole(&y));
    assert!(matches!(device.copy(x, y), Err(Error::DType { .. })));
    assert!(matches!(device.scaled_add(1.0, x, 1.0, y), Err(Error::DType { .. })));
}

#[test]
fn kernels_may_be_called_from_inside_and_outside_the_threads_of_the_device() {
    let device = device();
    let x = device.alloc(DType::F32, 100_000).unwrap();
    device.enter(|| device.fill(1.0, View::whole(&x))).unwrap();
    device.fill(2.0, View::whole(&x)).unwrap();
    assert_eq!(device.read(&x, 99_999..100_000).unwrap().to_f64(), [2.0]);
}
