//! Buffers, traffic with the host, and the figures about memory.

use super::placed::upload_f32;
use super::refusal::{refused_dtype, refused_shape};
use crate::{Buffer, DType, Device, Error, HostSlice, HostVec, Layout, Result, View};

/// Values of every dtype at the edges of its range.
fn edge_values() -> Vec<HostVec> {
    let floats = [0.0, -0.0, 1.5, -2.25, f64::INFINITY, f64::NEG_INFINITY, 6e-8];
    let mut all: Vec<HostVec> =
        DType::FLOATS.iter().map(|&dtype| HostVec::from_f64(dtype, &floats)).collect();
    all.push(HostVec::U32(vec![0, 1, u32::MAX]));
    all.push(HostVec::I64(vec![0, -1, i64::MIN, i64::MAX, (1 << 53) + 1]));
    all.push(HostVec::U8(vec![0, 1, 255]));
    all
}

/// What is uploaded comes back bit for bit, whole and in parts.
pub fn an_upload_comes_back<D: Device>(device: &D) -> Result<()> {
    for host in edge_values() {
        let buffer = device.upload(host.as_slice())?;
        assert_eq!((buffer.dtype(), buffer.len()), (host.dtype(), host.len()));
        assert!(!buffer.is_empty());
        let back = device.download(&buffer)?;
        assert_eq!(back.as_slice().bytes(), host.as_slice().bytes(), "{}", host.dtype());
        let part = device.read(&buffer, 1..3)?;
        assert_eq!(part.dtype(), host.dtype());
        let size = host.dtype().size();
        assert_eq!(part.as_slice().bytes(), &host.as_slice().bytes()[size..3 * size]);
    }
    Ok(())
}

/// Buffers of no elements can be made, written, read and computed on.
pub fn empty_buffers_are_buffers<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        let allocated = device.alloc(dtype, 0)?;
        let uploaded = device.upload(HostVec::zeros(dtype, 0).as_slice())?;
        for buffer in [&allocated, &uploaded] {
            assert!(buffer.is_empty() && buffer.dtype() == dtype);
            assert!(device.download(buffer)?.is_empty());
            assert!(device.read(buffer, 0..0)?.is_empty());
            device.write(HostVec::zeros(dtype, 0).as_slice(), buffer, 0)?;
            device.fill(1.0, View::whole(buffer))?;
        }
        device.copy(View::whole(&uploaded), View::whole(&allocated))?;
    }
    device.synchronize()
}

/// Memory handed out can be read at once: masks hold bytes, floats hold floats.
pub fn fresh_memory_can_be_read<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        let buffer = device.alloc(dtype, 1000)?;
        let values = device.download(&buffer)?;
        assert_eq!((values.dtype(), values.len()), (dtype, 1000));
    }
    Ok(())
}

/// Writing changes the elements from the offset on and no others.
pub fn a_write_changes_its_own_elements<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        let buffer =
            device.upload(HostVec::from_f64(dtype, &[1.0, 2.0, 3.0, 4.0, 5.0]).as_slice())?;
        device.write(HostVec::from_f64(dtype, &[8.0, 9.0]).as_slice(), &buffer, 2)?;
        device.write(HostVec::zeros(dtype, 0).as_slice(), &buffer, 5)?;
        assert_eq!(device.download(&buffer)?.to_f64(), [1.0, 2.0, 8.0, 9.0, 5.0], "{dtype}");
    }
    Ok(())
}

/// A range outside the buffer is refused, also where its end cannot be counted, and nothing of
/// it is written.
pub fn ranges_outside_a_buffer_are_refused<D: Device>(device: &D) -> Result<()> {
    let buffer = upload_f32(device, &[1.0, 2.0, 3.0])?;
    refused_shape("read past the end", device.read(&buffer, 2..4));
    refused_shape("read of a far range", device.read(&buffer, usize::MAX - 1..usize::MAX));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = 2..1;
    refused_shape("read of a reversed range", device.read(&buffer, reversed));
    let two = HostSlice::F32(&[7.0, 7.0]);
    refused_shape("write past the end", device.write(two, &buffer, 2));
    refused_shape("write of a far range", device.write(two, &buffer, usize::MAX));
    assert_eq!(device.download(&buffer)?, HostVec::F32(vec![1.0, 2.0, 3.0]));
    Ok(())
}

/// Host values of another dtype are refused, also where their size in bytes would fit.
pub fn a_write_of_another_dtype_is_refused<D: Device>(device: &D) -> Result<()> {
    let buffer = upload_f32(device, &[1.0, 2.0])?;
    refused_dtype("u32 into f32", device.write(HostSlice::U32(&[7, 7]), &buffer, 0));
    refused_dtype("f64 into f32", device.write(HostSlice::F64(&[7.0]), &buffer, 0));
    assert_eq!(device.download(&buffer)?, HostVec::F32(vec![1.0, 2.0]));
    Ok(())
}

/// Clones of a handle name one memory; other buffers, even of equal content, do not.
pub fn clones_name_the_same_memory<D: Device>(device: &D) -> Result<()> {
    let first = upload_f32(device, &[1.0, 2.0])?;
    let clone = first.clone();
    let other = upload_f32(device, &[1.0, 2.0])?;
    assert!(first.same_memory(&clone) && clone.same_memory(&first));
    assert!(!first.same_memory(&other));
    device.write(HostSlice::F32(&[9.0]), &clone, 1)?;
    drop(clone);
    assert_eq!(device.download(&first)?, HostVec::F32(vec![1.0, 9.0]));
    assert_eq!(device.download(&other)?, HostVec::F32(vec![1.0, 2.0]));
    Ok(())
}

/// Clones of a device see one another's buffers, and so do the threads that hold them.
pub fn clones_of_a_device_share_buffers<D: Device>(device: &D) -> Result<()> {
    let buffer = upload_f32(device, &[1.0, 2.0])?;
    let (other, handle) = (device.clone(), buffer.clone());
    let worker = std::thread::spawn(move || {
        other.fill(5.0, View::whole(&handle))?;
        other.download(&handle)
    });
    let seen = worker.join().expect("a kernel on another thread does not panic")?;
    assert_eq!(seen, HostVec::F32(vec![5.0, 5.0]));
    assert_eq!(device.download(&buffer)?, seen);
    Ok(())
}

/// A read sees all earlier work, and a write is seen by all later work.
pub fn work_is_ordered<D: Device>(device: &D) -> Result<()> {
    let buffer = upload_f32(device, &vec![0.0; 10_000])?;
    for round in 0..20 {
        device.write(HostSlice::F32(&[100.0 * round as f32]), &buffer, 9_999)?;
        for _ in 0..5 {
            device.scaled_add(1.0, View::whole(&buffer), 1.0, View::whole(&buffer))?;
        }
        let last = device.read(&buffer, 9_999..10_000)?.to_f64()[0];
        assert_eq!(last, 3200.0 * f64::from(round), "round {round}");
    }
    device.synchronize()
}

/// The figures count what is held, the peak is the highest of them, and a reset starts anew.
pub fn live_and_peak_bytes_are_counted<D: Device>(device: &D) -> Result<()> {
    let bytes = 4 * 100_000;
    let start = device.memory().live_bytes;
    let kept = device.alloc(DType::F32, 100_000)?;
    let held = device.memory().live_bytes;
    assert!(held >= start + bytes, "{held} bytes live after {start} and {bytes} more");
    device.reset_peak();
    assert_eq!(device.memory().peak_bytes, device.memory().live_bytes);
    drop(device.alloc(DType::F32, 100_000)?);
    device.synchronize()?;
    let stats = device.memory();
    assert_eq!(stats.live_bytes, held, "a dropped buffer is not live");
    assert!(stats.peak_bytes >= held + bytes, "the peak saw the dropped buffer: {stats:?}");
    device.reset_peak();
    assert_eq!(device.memory().peak_bytes, held);
    drop(kept);
    device.synchronize()?;
    assert_eq!(device.memory().live_bytes, start);
    Ok(())
}

/// Steps that allocate the same sizes ask the system once.
pub fn repeated_steps_allocate_nothing_from_the_system<D: Device>(device: &D) -> Result<()> {
    let step = || -> Result<()> {
        let buffers = (1..8)
            .map(|layer| device.alloc(DType::F32, layer * 1000))
            .collect::<Result<Vec<_>>>()?;
        for buffer in &buffers {
            device.fill(1.0, View::whole(buffer))?;
        }
        device.synchronize()
    };
    step()?;
    let first = device.memory();
    for _ in 0..20 {
        step()?;
    }
    let last = device.memory();
    assert_eq!(last.system_allocations, first.system_allocations, "after 20 equal steps");
    assert_eq!(last.live_bytes, first.live_bytes, "after 20 equal steps");
    Ok(())
}

/// More memory than there can be is an error with the number, and the device works on.
pub fn too_much_memory_is_an_error<D: Device>(device: &D) -> Result<()> {
    for len in [usize::MAX, usize::MAX / 8, 1 << 55] {
        match device.alloc(DType::F64, len) {
            Err(Error::OutOfMemory { requested, .. }) => {
                assert_eq!(requested, len.saturating_mul(8), "the message names the bytes");
            }
            Err(other) => panic!("expected an out-of-memory error, got: {other}"),
            Ok(_) => panic!("{len} doubles cannot be allocated"),
        }
    }
    let buffer = upload_f32(device, &[1.0])?;
    device.fill(2.0, View::whole(&buffer))?;
    assert_eq!(device.download(&buffer)?, HostVec::F32(vec![2.0]));
    Ok(())
}

/// `enter` gives back what its body gives, and work inside and outside is the same.
pub fn work_inside_enter_is_the_same<D: Device>(device: &D) -> Result<()> {
    let buffer = upload_f32(device, &vec![1.0; 5000])?;
    let inside = device.enter(|| {
        device.scaled_add(2.0, View::whole(&buffer), 1.0, View::whole(&buffer))?;
        device.enter(|| device.download(&buffer))
    })?;
    assert_eq!(inside.to_f64(), vec![3.0; 5000]);
    assert_eq!(device.download(&buffer)?, inside);
    Ok(())
}

/// A device says what it is.
pub fn a_device_has_a_name<D: Device>(device: &D) -> Result<()> {
    assert!(!device.name().trim().is_empty(), "the name is used in messages");
    Ok(())
}

/// Views that reach beyond their buffer are refused by every kernel that takes them.
pub fn views_beyond_their_buffer_are_refused<D: Device>(device: &D) -> Result<()> {
    let buffer = upload_f32(device, &[1.0, 2.0, 3.0, 4.0])?;
    let beyond = View::new(&buffer, Layout::flat(1, 4));
    let far = View::new(&buffer, Layout::strided(&[2], &[1 << 60], 1)?);
    let other = device.alloc(DType::F32, 4)?;
    let whole = View::whole(&other);
    refused_shape("fill beyond", device.fill(0.0, beyond));
    refused_shape("copy from beyond", device.copy(beyond, whole));
    refused_shape("copy to beyond", device.copy(whole, beyond));
    refused_shape("fill of a far view", device.fill(0.0, far));
    assert_eq!(device.download(&buffer)?, HostVec::F32(vec![1.0, 2.0, 3.0, 4.0]));
    Ok(())
}
