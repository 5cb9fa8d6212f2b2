/* Start newlib's semihosting runtime on QEMU's mps2-an386, a Cortex-M4 with a floating-point unit. */
extern unsigned int stack_top;
extern void _start(void);

void reset(void)
{
    *(volatile unsigned int *)0xE000ED88u |= 0xFu << 20; /* CPACR: the floating-point unit is on */
    __asm volatile("dsb\n\tisb");
    _start();
}

__attribute__((section(".vectors"), used)) void *vectors[2] = {&stack_top, (void *)reset};
