//go:build plant

package allocation

// plantAt is the word in which a program built with the tag "plant" flips a bit after each writing, to prove on real
// hardware that a single wrong bit is found.
const plantAt, plantBit = 1234567890, 1 << 20

const plantKernel = `.version 6.3
.target sm_75
.address_size 64
.visible .entry flip(.param .u64 at, .param .u64 bit, .param .u64 u, .param .u64 v)
{
	.reg .b32 %r<3>;
	.reg .b64 %d<3>;
	.reg .pred %p;
	mov.u32 %r0, %ctaid.x;
	mov.u32 %r1, %tid.x;
	or.b32 %r0, %r0, %r1;
	setp.ne.u32 %p, %r0, 0;
	@%p bra done;
	ld.param.u64 %d0, [at];
	ld.param.u64 %d1, [bit];
	ld.global.u64 %d2, [%d0];
	xor.b64 %d2, %d2, %d1;
	st.global.u64 [%d0], %d2;
done:
	ret;
}
`

func plant(a area) {
	k, failed := a.compile(plantKernel, "flip")
	if failed == nil {
		_, _, failed = a.run(k[0], [4]uint64{a.at + 8*plantAt, plantBit, 0, 0})
	}
	if failed != nil {
		panic(failed.words())
	}
}
