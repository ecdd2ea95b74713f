// A buffer of one type is not a buffer of another.
use heist_builder::*;

kernel_params! { pub struct Args { data: Global<f32>, n: u32 } }

fn main() {
    let words: DevicePtr<u32> = DevicePtr::new(0);
    let _: Args = Args { data: words, n: 1 };
}
