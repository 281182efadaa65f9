//! The world of one rank keeps the promises of a communicator.

use sneppx_contract::{
    Buffer, Communicator, DType, Error, HostSlice, Memory, ReduceOp, Result, conformance,
};
use sneppx_cpu::{Cpu, CpuOptions};
use sneppx_single::Solo;

fn open() -> (Cpu, Solo<Cpu>) {
    let device = Cpu::new(CpuOptions { threads: Some(1) }).expect("a CPU is always there");
    (device, Solo::new())
}

fn in_every_rank(check: impl Fn(&Cpu, &Solo<Cpu>) -> Result<()>) {
    let (device, world) = open();
    check(&device, &world).expect("a call that the contract allows");
}

sneppx_contract::communicator_conformance!(in_every_rank);

#[test]
fn the_table_of_promises_runs_without_the_harness() -> Result<()> {
    let (device, world) = open();
    let promises = conformance::communicator::communicator_promises::<Solo<Cpu>>();
    assert!(promises.iter().any(|promise| promise.name == "all_reduce_combines_all_ranks"));
    promises.iter().try_for_each(|promise| (promise.check)(&device, &world))
}

#[test]
fn no_collective_copies_anything() -> Result<()> {
    let (device, world) = open();
    let buffer = device.upload(HostSlice::F32(&[1.0, 2.0, 3.0]))?;
    let live = device.memory().live_bytes;
    for result in [
        world.broadcast(buffer.clone(), 0)?,
        world.all_gather(buffer.clone())?,
        world.all_to_all(buffer.clone())?,
        world.all_reduce(buffer.clone(), ReduceOp::Min)?,
        world.reduce_scatter(buffer.clone(), ReduceOp::Sum)?,
    ] {
        assert!(result.wait()?.same_memory(&buffer));
    }
    assert_eq!(device.memory().live_bytes, live);
    Ok(())
}

#[test]
fn an_ended_group_refuses_every_call_with_the_first_reason() -> Result<()> {
    let (device, world) = open();
    let (copy, part) = (world.clone(), world.split(1, 2)?);
    let unrelated = Solo::<Cpu>::new();
    world.abort(&Error::Internal("loss of rank 0 is NaN".into()));
    world.abort(&Error::Internal("a later reason".into()));
    let buffer = || device.alloc(DType::F32, 1);
    for group in [&world, &copy, &part] {
        let refusals = [
            group.barrier().unwrap_err(),
            group.split(0, 0).unwrap_err(),
            group.broadcast(buffer()?, 0).unwrap_err(),
            group.all_gather(buffer()?).unwrap_err(),
            group.all_to_all(buffer()?).unwrap_err(),
            group.all_reduce(buffer()?, ReduceOp::Sum).unwrap_err(),
            group.reduce_scatter(buffer()?, ReduceOp::Sum).unwrap_err(),
        ];
        for error in refusals {
            assert!(matches!(error, Error::Peer { rank: 0, .. }), "{error:?}");
            assert!(error.to_string().contains("loss of rank 0 is NaN"), "{error}");
        }
    }
    unrelated.barrier()
}

#[test]
fn a_world_travels_between_threads_whatever_its_device() {
    fn travels<T: Send + Sync + Clone + std::fmt::Debug + 'static>(_: &T) {}
    let world = Solo::<Cpu>::default();
    travels(&world);
    assert_eq!(format!("{world:?}"), "Solo { ended: None }");
}
