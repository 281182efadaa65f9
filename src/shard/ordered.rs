//! Ordered reduction: one binary tree on the numbers of the micro-batches.
//!
//! The node at level `l` and index `i` is the sum of its two children, or its only child at the
//! right edge. The order of addition depends on nothing but the number of micro-batches, so the
//! same gradients give the same bits whoever computed them. A binary counter forms the tree as
//! values arrive, holding at most `log2(count) + 1` partial sums.

use std::sync::Arc;

use sneppx_contract::{Device, Result};

use crate::tensor::{Leaf, Tensor};

/// Adds values along the tree, in the order of their numbers.
#[derive(Debug)]
pub struct TreeCounter<T> {
    /// Complete nodes with their levels; levels fall from left to right.
    nodes: Vec<(u32, T)>,
}

impl<T> Default for TreeCounter<T> {
    fn default() -> Self {
        TreeCounter { nodes: Vec::new() }
    }
}

impl<T> TreeCounter<T> {
    /// Takes the next value in; `add` forms the sum of a left and a right node.
    ///
    /// # Errors
    /// Whatever `add` returns.
    pub fn push(&mut self, value: T, add: &mut dyn FnMut(T, T) -> Result<T>) -> Result<()> {
        let (mut level, mut value) = (0, value);
        while self.nodes.last().is_some_and(|&(last, _)| last == level) {
            if let Some((_, left)) = self.nodes.pop() {
                value = add(left, value)?;
                level += 1;
            }
        }
        self.nodes.push((level, value));
        Ok(())
    }

    /// The root, if any value was pushed: a node without a right sibling moves up as it is.
    ///
    /// # Errors
    /// Whatever `add` returns.
    pub fn finish(mut self, add: &mut dyn FnMut(T, T) -> Result<T>) -> Result<Option<T>> {
        let Some((_, mut sum)) = self.nodes.pop() else { return Ok(None) };
        while let Some((_, left)) = self.nodes.pop() {
            sum = add(left, sum)?;
        }
        Ok(Some(sum))
    }
}

/// Sums the gradients of a model's leaves over micro-batches.
#[derive(Debug)]
pub struct OrderedSum<'a, D: Device> {
    leaves: &'a [Arc<Leaf<D>>],
    tree: TreeCounter<Vec<Option<Tensor<D>>>>,
}

impl<'a, D: Device> OrderedSum<'a, D> {
    /// A sum over the gradients of `leaves`.
    pub fn new(leaves: &'a [Arc<Leaf<D>>]) -> Self {
        OrderedSum { leaves, tree: TreeCounter::default() }
    }

    /// Takes the gradients of the next micro-batch out of the leaves. A leaf that took no part in
    /// this micro-batch adds nothing; one that took part in none keeps no gradient.
    ///
    /// # Errors
    /// Whatever the device reports.
    pub fn take(&mut self) -> Result<()> {
        let grads = self.leaves.iter().map(|leaf| {
            let grad = leaf.grad();
            leaf.clear_grad();
            grad
        });
        self.tree.push(grads.collect(), &mut add_all)
    }

    /// Leaves the sums in the leaves.
    ///
    /// # Errors
    /// Whatever the device reports.
    pub fn finish(self) -> Result<()> {
        if let Some(sums) = self.tree.finish(&mut add_all)? {
            self.leaves.iter().zip(sums).for_each(|(leaf, sum)| leaf.set_grad(sum));
        }
        Ok(())
    }
}

fn add_all<D: Device>(
    left: Vec<Option<Tensor<D>>>,
    right: Vec<Option<Tensor<D>>>,
) -> Result<Vec<Option<Tensor<D>>>> {
    left.into_iter()
        .zip(right)
        .map(|pair| match pair {
            (Some(left), Some(right)) => {
                left.device().scaled_add(1.0, right.view(), 1.0, left.view())?;
                Ok(Some(left))
            }
            (left, right) => Ok(left.or(right)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_of(count: usize) -> String {
        let mut add = |left: String, right: String| Ok(format!("({left}{right})"));
        let mut counter = TreeCounter::default();
        for number in 0..count {
            counter.push(number.to_string(), &mut add).unwrap();
        }
        counter.finish(&mut add).unwrap().unwrap_or_default()
    }

    #[test]
    fn the_order_of_addition_is_the_tree_on_numbers() {
        assert_eq!(tree_of(0), "");
        assert_eq!(tree_of(1), "0");
        assert_eq!(tree_of(2), "(01)");
        assert_eq!(tree_of(3), "((01)2)");
        assert_eq!(tree_of(6), "(((01)(23))(45))");
        assert_eq!(tree_of(7), "(((01)(23))((45)6))");
    }

    #[test]
    fn partial_sums_stay_logarithmic() {
        let mut counter = TreeCounter::default();
        for number in 0..1000u64 {
            counter.push(number, &mut |left, right| Ok(left + right)).unwrap();
            assert!(counter.nodes.len() <= 10);
        }
        assert_eq!(counter.finish(&mut |left, right| Ok(left + right)).unwrap(), Some(499_500));
    }
}
