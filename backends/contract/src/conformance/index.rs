//! Rows chosen by index: gathering them and adding to them.

use super::placed::{Lie, Placed, assert_same_bits, draw, drawn};
use super::refusal::{refused_dtype, refused_index, refused_shape};
use super::tolerance::assert_close;
use crate::{DType, Device, Error, HostSlice, Layout, Result, View};

/// Shapes of one row, from a single element to long and empty ones.
const ROWS: [&[usize]; 6] = [&[], &[1], &[3], &[2, 70], &[2, 3, 4], &[0]];

/// Indices with repeats, in no order.
const INDICES: [f64; 9] = [4.0, 0.0, 6.0, 6.0, 1.0, 4.0, 4.0, 3.0, 0.0];

/// Each index picks its row, for every dtype, both index dtypes and any layout.
pub fn index_select_picks_rows<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        for index_dtype in [DType::U32, DType::I64] {
            for (seed, row) in ROWS.into_iter().enumerate() {
                let width: usize = row.iter().product();
                let lie = |n: usize| Lie::ALL[(seed + n) % 5];
                let values = draw(dtype, seed as u64, 7 * width, 0.0, 200.0);
                let table = Placed::new(device, dtype, &[&[7], row].concat(), lie(0), &values)?;
                let indices = Placed::new(device, index_dtype, &[9], lie(1), &INDICES)?;
                let out = Placed::output(device, dtype, &[&[9], row].concat(), lie(2))?;
                device.index_select(table.view(), indices.view(), out.view())?;
                let pick = |&index: &f64| &values[index as usize * width..][..width];
                let want: Vec<f64> = INDICES.iter().flat_map(pick).copied().collect();
                assert_eq!(out.values()?, want, "{dtype} {index_dtype} {row:?}");
            }
        }
    }
    Ok(())
}

/// No indices pick nothing and add nothing, also from a table without rows.
pub fn no_indices_are_fine<D: Device>(device: &D) -> Result<()> {
    for rows in [0, 3] {
        let (table, values) = drawn(device, DType::F32, 1, &[rows, 2])?;
        let indices = Placed::new(device, DType::I64, &[0], Lie::Whole, &[])?;
        let nothing = Placed::output(device, DType::F32, &[0, 2], Lie::Whole)?;
        device.index_select(table.view(), indices.view(), nothing.view())?;
        device.index_add(indices.view(), nothing.view(), table.view())?;
        device.synchronize()?;
        assert_eq!(table.values()?, values);
    }
    Ok(())
}

/// An index outside the table is an error with its value and place, not a read of other memory.
pub fn an_index_outside_the_table_is_an_error<D: Device>(device: &D) -> Result<()> {
    let bad = [3, -1, i64::from(u32::MAX), 1 << 31, 1 << 40, i64::MIN];
    for (number, index) in bad.into_iter().enumerate() {
        // A queue may keep its first error, so each case may need a device of its own to go on.
        let (table, _) = drawn(device, DType::F32, 1, &[3, 2])?;
        let (rows, _) = drawn(device, DType::F32, 2, &[4, 2])?;
        let list = device.upload(HostSlice::I64(&[0, 9, 1, 9, index, 9, 2]))?;
        let view = View::new(&list, Layout::strided(&[4], &[2], 0)?);
        let picked = device.index_select(table.view(), view, rows.view());
        let picked = picked.and_then(|()| device.synchronize());
        refused_index("index_select", picked, index, 2, 3);
        let added = device.index_add(view, rows.view(), table.view());
        let added = added.and_then(|()| device.synchronize());
        refused_index("index_add", added, index, 2, 3);
        if number == 0 {
            let list = device.upload(HostSlice::U32(&[0, 1, 2, u32::MAX]))?;
            let picked = device.index_select(table.view(), View::whole(&list), rows.view());
            let picked = picked.and_then(|()| device.synchronize());
            refused_index("index_select", picked, i64::from(u32::MAX), 3, 3);
        }
    }
    Ok(())
}

/// An error of an index names the operation and the bound in its message.
pub fn an_index_error_says_where<D: Device>(device: &D) -> Result<()> {
    let (table, _) = drawn(device, DType::F32, 1, &[3, 2])?;
    let (rows, _) = drawn(device, DType::F32, 2, &[1, 2])?;
    let list = device.upload(HostSlice::I64(&[11]))?;
    let picked = device.index_select(table.view(), View::whole(&list), rows.view());
    let error: Error = picked.and_then(|()| device.synchronize()).unwrap_err();
    let message = error.to_string();
    for word in ["index_select", "11", "0..3"] {
        assert!(message.contains(word), "{word} is missing in: {message}");
    }
    Ok(())
}

/// Each row is added to the row its index names; rows without an index keep their values.
pub fn index_add_adds_rows<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for index_dtype in [DType::U32, DType::I64] {
            for (seed, row) in ROWS.into_iter().enumerate() {
                let width: usize = row.iter().product();
                let lie = |n: usize| Lie::ALL[(seed + n) % 5];
                let old = draw(dtype, seed as u64, 7 * width, -2.0, 2.0);
                let values = draw(dtype, 50 + seed as u64, 9 * width, -2.0, 2.0);
                let indices = Placed::new(device, index_dtype, &[9], lie(0), &INDICES)?;
                let source = Placed::new(device, dtype, &[&[9], row].concat(), lie(1), &values)?;
                let out = Placed::new(device, dtype, &[&[7], row].concat(), lie(2), &old)?;
                device.index_add(indices.view(), source.view(), out.view())?;
                let mut want = old.clone();
                for (index, row) in INDICES.iter().zip(values.chunks(width.max(1))) {
                    for (column, value) in row.iter().enumerate() {
                        want[*index as usize * width + column] += value;
                    }
                }
                assert_close(&format!("{row:?}"), dtype, &out.values()?, &want, 8.0);
                let kept = |row: usize| row * width..(row + 1) * width;
                for row in [2, 5] {
                    assert_eq!(out.values()?[kept(row)], old[kept(row)], "{dtype} row {row}");
                }
            }
        }
    }
    Ok(())
}

/// Rows that meet in one place are added in ascending order.
pub fn index_add_adds_in_ascending_order<D: Device>(device: &D) -> Result<()> {
    let indices = Placed::new(device, DType::U32, &[4], Lie::Whole, &[1.0, 1.0, 0.0, 1.0])?;
    for (values, want) in [([1e8, 1.0, 5.0, -1e8], 0.0), ([1e8, -1e8, 5.0, 1.0], 1.0)] {
        let source = Placed::new(device, DType::F32, &[4, 1], Lie::Whole, &values)?;
        let out = Placed::new(device, DType::F32, &[2, 1], Lie::Whole, &[0.0; 2])?;
        device.index_add(indices.view(), source.view(), out.view())?;
        assert_eq!(out.values()?, [5.0, want], "{values:?}");
    }
    Ok(())
}

/// Many small 16-bit values that meet in one place are not lost one by one.
pub fn index_add_sums_16_bit_floats_in_f32<D: Device>(device: &D) -> Result<()> {
    for (dtype, count) in [(DType::BF16, 1000), (DType::F16, 4000)] {
        let indices = Placed::new(device, DType::I64, &[count], Lie::Whole, &vec![1.0; count])?;
        let source = Placed::new(device, dtype, &[count, 3], Lie::Whole, &vec![1.0; 3 * count])?;
        let out = Placed::new(device, dtype, &[2, 3], Lie::Whole, &[0.0; 6])?;
        device.index_add(indices.view(), source.view(), out.view())?;
        let n = count as f64;
        assert_close("ones", dtype, &out.values()?, &[0.0, 0.0, 0.0, n, n, n], 1.0);
    }
    Ok(())
}

/// Equal inputs give equal bits, however many rows meet.
pub fn index_add_gives_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let (source, _) = drawn(device, DType::F32, 1, &[5000, 17])?;
    let picks = draw(DType::U32, 2, 5000, 0.0, 10.0);
    let indices = Placed::new(device, DType::U32, &[5000], Lie::Whole, &picks)?;
    assert_same_bits("index_add", || {
        let out = Placed::new(device, DType::F32, &[10, 17], Lie::Whole, &[0.0; 170])?;
        device.index_add(indices.view(), source.view(), out.view())?;
        out.bytes()
    })
}

/// Other shapes and dtypes are refused by both.
pub fn unfit_tables_and_indices_are_refused<D: Device>(device: &D) -> Result<()> {
    let (table, _) = drawn(device, DType::F32, 1, &[3, 2])?;
    let (rows, _) = drawn(device, DType::F32, 1, &[4, 2])?;
    let (narrow, _) = drawn(device, DType::F32, 1, &[4, 1])?;
    let (double, _) = drawn(device, DType::F64, 1, &[4, 2])?;
    let scalar = Placed::output(device, DType::F32, &[], Lie::Whole)?;
    let indices = Placed::new(device, DType::U32, &[4], Lie::Whole, &[0.0; 4])?;
    let five = Placed::new(device, DType::U32, &[5], Lie::Whole, &[0.0; 5])?;
    let square = Placed::new(device, DType::U32, &[2, 2], Lie::Whole, &[0.0; 4])?;
    let bytes = Placed::new(device, DType::U8, &[4], Lie::Whole, &[0.0; 4])?;
    let (table, rows, indices) = (table.view(), rows.view(), indices.view());
    refused_shape("narrow rows", device.index_select(table, indices, narrow.view()));
    refused_shape("five indices", device.index_select(table, five.view(), rows));
    refused_shape("a matrix of indices", device.index_select(table, square.view(), rows));
    refused_shape("a scalar table", device.index_select(scalar.view(), indices, rows));
    refused_dtype("mixed", device.index_select(table, indices, double.view()));
    refused_dtype("byte indices", device.index_select(table, bytes.view(), rows));
    refused_dtype("float indices", device.index_select(table, rows, rows));
    refused_shape("narrow rows", device.index_add(indices, narrow.view(), table));
    refused_shape("five indices", device.index_add(five.view(), rows, table));
    refused_dtype("mixed", device.index_add(indices, double.view(), table));
    refused_dtype("byte indices", device.index_add(bytes.view(), rows, table));
    let whole = Placed::new(device, DType::I64, &[3], Lie::Whole, &[0.0; 3])?;
    let ones = Placed::new(device, DType::I64, &[4], Lie::Whole, &[1.0; 4])?;
    refused_dtype("integers", device.index_add(indices, ones.view(), whole.view()));
    Ok(())
}
