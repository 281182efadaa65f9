//! Layout arithmetic against a list that says for each element where it lies.

use proptest::prelude::*;
use sneppx_contract::{DType, Error, Layout, MAX_NDIM, Result, Shape};

/// A tensor as everybody understands it: sizes, and the place of each element in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    sizes: Vec<usize>,
    places: Vec<usize>,
}

impl Model {
    /// The places of a layout, by multiplying every index out.
    fn of(layout: &Layout) -> Self {
        Model::build(layout.shape().to_vec(), |index| {
            let steps = index.iter().zip(layout.strides()).map(|(i, stride)| i * stride);
            layout.offset() + steps.sum::<usize>()
        })
    }

    fn build(sizes: Vec<usize>, place: impl Fn(&[usize]) -> usize) -> Self {
        let places = every_index(&sizes).iter().map(|index| place(index)).collect();
        Model { sizes, places }
    }

    fn at(&self, index: &[usize]) -> usize {
        assert_eq!(index.len(), self.sizes.len());
        let row_major = index.iter().zip(&self.sizes).fold(0, |at, (i, size)| at * size + i);
        self.places[row_major]
    }

    fn transpose(&self, first: usize, second: usize) -> Self {
        let mut sizes = self.sizes.clone();
        sizes.swap(first, second);
        Model::build(sizes, |index| {
            let mut from = index.to_vec();
            from.swap(first, second);
            self.at(&from)
        })
    }

    fn permute(&self, order: &[usize]) -> Self {
        let sizes = order.iter().map(|&dim| self.sizes[dim]).collect();
        Model::build(sizes, |index| {
            let mut from = vec![0; index.len()];
            order.iter().zip(index).for_each(|(&dim, &i)| from[dim] = i);
            self.at(&from)
        })
    }

    fn narrow(&self, dim: usize, start: usize, len: usize) -> Self {
        let mut sizes = self.sizes.clone();
        sizes[dim] = len;
        Model::build(sizes, |index| {
            let mut from = index.to_vec();
            from[dim] += start;
            self.at(&from)
        })
    }

    fn broadcast_to(&self, sizes: &[usize]) -> Self {
        let lead = sizes.len() - self.sizes.len();
        Model::build(sizes.to_vec(), |index| {
            let kept = index[lead..].iter().zip(&self.sizes);
            self.at(&kept.map(|(&i, &size)| if size == 1 { 0 } else { i }).collect::<Vec<_>>())
        })
    }

    /// The strides that put the elements where they are, if there are any.
    fn strides(&self) -> Option<Vec<usize>> {
        let first = *self.places.first()?;
        let step = |dim: usize| {
            let mut index = vec![0; self.sizes.len()];
            index[dim] = usize::from(self.sizes[dim] > 1);
            self.at(&index).checked_sub(first)
        };
        let strides: Vec<usize> = (0..self.sizes.len()).map(step).collect::<Option<_>>()?;
        let layout = Layout::strided(&self.sizes, &strides, first).ok()?;
        (Model::of(&layout) == *self).then_some(strides)
    }
}

/// Every index of a tensor with these sizes, the last dimension fastest.
fn every_index(sizes: &[usize]) -> Vec<Vec<usize>> {
    let Some((&size, rest)) = sizes.split_first() else { return vec![vec![]] };
    let inner = every_index(rest);
    let rows = (0..size).flat_map(|i| inner.iter().map(move |rest| [&[i], &rest[..]].concat()));
    rows.collect()
}

/// One step of a random walk through views; numbers are taken modulo what exists.
#[derive(Clone, Debug)]
enum Move {
    Transpose(usize, usize),
    Rotate(usize),
    Narrow(usize, usize, usize),
    Select(usize, usize),
    Unsqueeze(usize),
    Squeeze(usize),
    Stretch(usize, usize),
    Lead(usize),
    Coalesce,
}

fn moves() -> impl Strategy<Value = Move> {
    let n = 0..usize::MAX;
    prop_oneof![
        (n.clone(), n.clone()).prop_map(|(a, b)| Move::Transpose(a, b)),
        n.clone().prop_map(Move::Rotate),
        (n.clone(), n.clone(), n.clone()).prop_map(|(a, b, c)| Move::Narrow(a, b, c)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Move::Select(a, b)),
        n.clone().prop_map(Move::Unsqueeze),
        n.clone().prop_map(Move::Squeeze),
        (n.clone(), 0..4usize).prop_map(|(a, b)| Move::Stretch(a, b)),
        (0..3usize).prop_map(Move::Lead),
        Just(Move::Coalesce),
    ]
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![6 => 1..5usize, 1 => Just(0)], 0..5)
}

/// Takes one step in both worlds; steps that do not exist from here are left out.
fn take(step: &Move, layout: Layout, model: Model) -> Result<(Layout, Model)> {
    let ndim = layout.ndim();
    let dims = |n: usize| if ndim == 0 { None } else { Some(n % ndim) };
    let stay = Ok((layout, model.clone()));
    match *step {
        Move::Transpose(a, b) => {
            let (Some(a), Some(b)) = (dims(a), dims(b)) else { return stay };
            Ok((layout.transpose(a, b)?, model.transpose(a, b)))
        }
        Move::Rotate(by) => {
            let Some(by) = dims(by) else { return stay };
            let order: Vec<usize> = (0..ndim).map(|dim| (dim + by) % ndim).collect();
            Ok((layout.permute(&order)?, model.permute(&order)))
        }
        Move::Narrow(dim, start, len) => {
            let Some(dim) = dims(dim) else { return stay };
            let start = start % (model.sizes[dim] + 1);
            let len = len % (model.sizes[dim] - start + 1);
            Ok((layout.narrow(dim, start, len)?, model.narrow(dim, start, len)))
        }
        Move::Select(dim, index) => {
            let Some(dim) = dims(dim).filter(|&dim| model.sizes[dim] > 0) else { return stay };
            let index = index % model.sizes[dim];
            let mut out = model.narrow(dim, index, 1);
            out.sizes.remove(dim);
            Ok((layout.select(dim, index)?, out))
        }
        Move::Unsqueeze(dim) => {
            if ndim == MAX_NDIM {
                return stay;
            }
            let (dim, mut out) = (dim % (ndim + 1), model);
            out.sizes.insert(dim, 1);
            Ok((layout.unsqueeze(dim)?, out))
        }
        Move::Squeeze(dim) => {
            let Some(dim) = dims(dim).filter(|&dim| model.sizes[dim] == 1) else { return stay };
            let mut out = model;
            out.sizes.remove(dim);
            Ok((layout.squeeze(dim)?, out))
        }
        Move::Stretch(dim, size) => {
            let Some(dim) = dims(dim).filter(|&dim| model.sizes[dim] == 1) else { return stay };
            let mut sizes = model.sizes.clone();
            sizes[dim] = size;
            Ok((layout.broadcast_to(&Shape::new(&sizes)?)?, model.broadcast_to(&sizes)))
        }
        Move::Lead(size) => {
            if ndim == MAX_NDIM {
                return stay;
            }
            let sizes = [&[size], &model.sizes[..]].concat();
            Ok((layout.broadcast_to(&Shape::new(&sizes)?)?, model.broadcast_to(&sizes)))
        }
        Move::Coalesce => {
            let out = layout.coalesce();
            Ok((out, Model { sizes: out.shape().to_vec(), places: model.places }))
        }
    }
}

/// A layout reached by a random walk, with its model.
fn walked() -> impl Strategy<Value = (Layout, Model)> {
    (sizes(), 0..7usize, prop::collection::vec(moves(), 0..7)).prop_map(|(sizes, offset, steps)| {
        let layout = Layout::contiguous(Shape::new(&sizes).unwrap()).with_offset(offset);
        let count: usize = sizes.iter().product();
        let mut at = (layout, Model { sizes, places: (offset..offset + count).collect() });
        for step in &steps {
            // Walks that grow are cut short to keep the lists small.
            match take(step, at.0, at.1.clone()).unwrap() {
                next if next.1.places.len() <= 600 => at = next,
                _ => break,
            }
        }
        at
    })
}

/// All ways to write `count` as up to four sizes, ones included.
fn factorings(count: usize, ndim: usize) -> Vec<Vec<usize>> {
    if ndim == 0 {
        return if count == 1 { vec![vec![]] } else { vec![] };
    }
    let divisors = (1..=count).filter(|size| count.is_multiple_of(*size));
    let lists = divisors.flat_map(|size| {
        let rest = factorings(count / size, ndim - 1);
        rest.into_iter().map(move |rest| [&[size], &rest[..]].concat())
    });
    lists.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn views_name_the_elements_that_their_steps_say((layout, model) in walked()) {
        prop_assert_eq!(&layout.shape()[..], &model.sizes[..]);
        prop_assert_eq!(layout.numel(), model.places.len());
        prop_assert_eq!(&Model::of(&layout).places, &model.places);
        let found: Vec<usize> = (0..layout.numel()).map(|i| layout.position(i)).collect();
        prop_assert_eq!(&found, &model.places);
    }

    #[test]
    fn the_end_is_one_past_the_highest_place((layout, model) in walked()) {
        let end = model.places.iter().max().map_or(layout.offset(), |place| place + 1);
        prop_assert_eq!(layout.end(), Some(end));
        prop_assert!(layout.check("fill", end).is_ok());
        match model.places.is_empty() {
            true => prop_assert!(layout.check("fill", 0).is_ok(), "nothing fits anywhere"),
            false => prop_assert!(layout.check("fill", end - 1).is_err()),
        }
    }

    #[test]
    fn contiguous_means_one_run_in_order((layout, model) in walked()) {
        let first = model.places.first().copied().unwrap_or(layout.offset());
        let run = model.places.iter().copied().eq(first..first + model.places.len());
        prop_assert_eq!(layout.is_contiguous(), run);
        prop_assert_eq!(layout.contiguous_range(), run.then(|| first..first + layout.numel()));
    }

    #[test]
    fn a_place_named_twice_is_found((layout, model) in walked()) {
        let mut places = model.places.clone();
        places.sort_unstable();
        places.dedup();
        let twice = places.len() < model.places.len();
        prop_assert!(layout.may_overlap_itself() || !twice, "{:?} names places twice", layout);
        // Walks only cut and repeat, and there the answer is exact.
        prop_assert!(twice || !layout.may_overlap_itself(), "{:?} names no place twice", layout);
    }

    #[test]
    fn coalescing_keeps_places_and_leaves_nothing_to_merge((layout, model) in walked()) {
        let out = layout.coalesce();
        prop_assert_eq!(Model::of(&out).places, model.places);
        prop_assert_eq!(out.coalesce(), out);
        prop_assert!(out.shape().iter().all(|&size| size != 1));
        if layout.numel() > 0 {
            let mergeable = (1..out.ndim())
                .any(|dim| out.strides()[dim - 1] == out.strides()[dim] * out.shape()[dim]);
            prop_assert!(!mergeable, "{:?}", out);
        }
    }

    #[test]
    fn a_reshape_keeps_places_and_copies_only_where_no_strides_exist(
        (layout, model) in walked().prop_filter("small", |(_, model)| model.places.len() <= 60),
        ndim in 0..5usize,
        choice in 0..usize::MAX,
    ) {
        let count = model.places.len();
        let shapes = match count {
            0 => vec![vec![0], vec![2, 0], vec![0, 3, 1]],
            count => factorings(count, ndim),
        };
        prop_assume!(!shapes.is_empty());
        let sizes = shapes[choice % shapes.len()].clone();
        let wanted = Model { sizes: sizes.clone(), places: model.places };
        match layout.reshape(&Shape::new(&sizes).unwrap()).unwrap() {
            Some(out) => prop_assert_eq!(Model::of(&out), wanted),
            None => prop_assert_eq!(wanted.strides(), None, "{:?} to {:?}", layout, sizes),
        }
    }

    #[test]
    fn a_reshape_to_another_count_is_refused((layout, _) in walked(), more in 1..9usize) {
        let shape = Shape::new(&[layout.numel() + more]).unwrap();
        let refused = matches!(layout.reshape(&shape), Err(Error::Shape { .. }));
        prop_assert!(refused);
    }

    #[test]
    fn two_shapes_broadcast_to_what_both_stretch_to(left in sizes(), right in sizes()) {
        let (left, right) = (Shape::new(&left).unwrap(), Shape::new(&right).unwrap());
        let size = |shape: &Shape, back: usize| {
            shape.len().checked_sub(back).map_or(1, |axis| shape[axis])
        };
        let fits = (1..=left.len().max(right.len())).all(|back| {
            let (a, b) = (size(&left, back), size(&right, back));
            a == b || a == 1 || b == 1
        });
        let out = Shape::broadcast("add", &left, &right);
        prop_assert_eq!(out.is_ok(), fits);
        prop_assert_eq!(&Shape::broadcast("add", &right, &left).ok(), &out.clone().ok());
        if let Ok(out) = out {
            prop_assert!(Layout::contiguous(left).broadcast_to(&out).is_ok());
            prop_assert!(Layout::contiguous(right).broadcast_to(&out).is_ok());
            let smallest = (1..=out.len()).all(|back| {
                [size(&left, back), size(&right, back)].contains(&size(&out, back))
            });
            prop_assert!(smallest, "{:?}", out);
        }
    }

    #[test]
    fn what_does_not_exist_is_refused((layout, _) in walked(), beyond in 0..3usize) {
        let ndim = layout.ndim();
        prop_assert!(layout.transpose(0, ndim + beyond).is_err());
        prop_assert!(layout.narrow(ndim + beyond, 0, 0).is_err());
        prop_assert!(layout.select(ndim + beyond, 0).is_err());
        prop_assert!(layout.squeeze(ndim + beyond).is_err());
        prop_assert!(layout.unsqueeze(ndim + 1 + beyond).is_err());
        prop_assert!(layout.permute(&vec![0; ndim + 1]).is_err());
        for dim in 0..ndim {
            let size = layout.shape()[dim];
            prop_assert!(layout.narrow(dim, size, 1 + beyond).is_err());
            prop_assert!(layout.narrow(dim, 1 + beyond, usize::MAX).is_err());
            prop_assert!(layout.select(dim, size + beyond).is_err());
            prop_assert_eq!(layout.squeeze(dim).is_ok(), size == 1);
        }
    }
}

#[test]
fn size_01_more_than_two_to_the_31_elements_are_counted_and_placed() -> Result<()> {
    let count = (1usize << 31) + 5;
    let flat = Layout::flat(0, count);
    assert_eq!(flat.numel(), 2_147_483_653);
    assert_eq!(flat.position(count - 1), 2_147_483_652);

    // Four shards of equal length: 536870914 each, padded by 3.
    let padded = Layout::contiguous(Shape::new(&[4, count.div_ceil(4)])?);
    assert_eq!(*padded.shape(), [4, 536_870_914]);
    assert_eq!(padded.numel(), 2_147_483_656);
    assert_eq!(padded.numel() - count, 3);
    assert_eq!(padded.select(0, 3)?.offset(), 1_610_612_742);
    assert_eq!(padded.numel() * DType::F32.size(), 8_589_934_624);

    let tall = Layout::contiguous(Shape::new(&[50_000, 2_000, 6])?);
    assert_eq!(tall.numel() * DType::F32.size(), 2_400_000_000);
    Ok(())
}

#[test]
fn views_of_more_than_two_to_the_32_elements_keep_their_places() -> Result<()> {
    let (rows, columns) = (1usize << 17, (1usize << 17) + 3);
    let layout = Layout::contiguous(Shape::new(&[rows, columns])?);
    let turned = layout.transpose(0, 1)?;
    assert_eq!(turned.position(rows * columns - 1), rows * columns - 1);
    assert_eq!(turned.position(1), columns);
    let corner = layout.narrow(0, rows - 1, 1)?.narrow(1, columns - 2, 2)?;
    assert_eq!(corner.offset(), rows * columns - 2);
    assert_eq!(corner.end(), Some(rows * columns));
    assert!(corner.check("copy", rows * columns - 1).is_err());
    let again = layout.reshape(&Shape::new(&[columns, rows])?)?.expect("it has no gaps");
    assert_eq!(again.select(0, columns - 1)?.offset(), rows * (columns - 1));
    Ok(())
}

#[test]
fn counts_beyond_the_machine_are_errors_with_the_numbers() {
    let huge = 1usize << 40;
    let message = Shape::new(&[huge, huge]).unwrap_err().to_string();
    assert!(message.contains("1099511627776"), "{message}");
    assert!(Shape::new(&[huge, huge, 0]).is_err(), "an empty dimension hides nothing");
    assert!(Shape::new(&[1; MAX_NDIM + 1]).is_err());
    let (tall, wide) = (Shape::new(&[huge, 1]).unwrap(), Shape::new(&[1, huge]).unwrap());
    assert!(matches!(Shape::broadcast("add", &tall, &wide), Err(Error::Shape { .. })));
    // Strides may be anything; what would lie beyond the numbers is found where it is asked for.
    for (sizes, strides, offset) in [
        ([3, 2], [usize::MAX / 2 + 1, 1], 0),
        ([2, 2], [usize::MAX, 1], 1),
        ([2, 1], [1, 1], usize::MAX),
    ] {
        let layout = Layout::strided(&sizes, &strides, offset).unwrap();
        assert_eq!(layout.end(), None, "{layout:?}");
        assert!(layout.check("copy", usize::MAX).is_err());
        assert!(matches!(layout.narrow(0, sizes[0] - 1, 1), Err(Error::Shape { .. })));
        assert_eq!(layout.coalesce().end(), None);
        assert!(layout.reshape(&Shape::new(&[sizes[0] * sizes[1]]).unwrap()).is_ok());
    }
    assert!(Layout::strided(&[2], &[1, 2], 0).is_err());
}
