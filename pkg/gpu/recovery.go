package gpu

// RecoveryAction describes an action that a GPU requests.
type RecoveryAction struct {
	Meaning, Action string
	JobEffect       Effect // the effect on a running job
}

// RecoveryActions maps the values of nvmlDeviceGpuRecoveryAction_t, except 0 (none), to their
// descriptions. No new job may start on a GPU that requests any of them.
//
// Which actions can wait for the end of the job follows from NVIDIA's documentation (nvidia-smi's
// manual, "GPU Recovery Action"). With 1 all processes must be terminated, and with 2 no
// application can be started again. With 3 applications should be stopped "when convenient"; DCGM
// also only warns. With 4 existing work that was not affected may continue. With 5 the driver
// refuses new memory of the fabric, and itself ends the processes that have imported some
// (open-gpu-kernel-modules, imex_session_api.c). Drivers have 5 since version 575, but DCGM's range
// check drops it. 6 and 7 come with NVML 615 and are documented by their names only; they are
// handled like 1 and 2.
var RecoveryActions = map[int]RecoveryAction{
	1: {"the GPU requests a reset", "drain the node, and reset the GPU (nvidia-smi --gpu-reset)", EffectFatal},
	2: {"the GPU requests a reboot of the node", "drain the node, and reboot it", EffectFatal},
	3: {"the GPU requests that all traffic from other GPUs stops",
		"drain the node, and stop the programs that use the GPU over NVLink", EffectWarn},
	4: {"the GPU requests a drain and a reset",
		"drain the node, stop the programs on all of its GPUs, and reset this one after the job", EffectWarn},
	5: {"the GPU requests a recovery of its IMEX domain",
		"drain the node, and recover the IMEX domain (nvidia-imex-ctl; restart nvidia-imex on its nodes)", EffectWarn},
	6: {"the GPU requests a reset of its PCIe bus",
		"drain the node, and reset the GPU's PCIe bus, or reboot the node", EffectFatal},
	7: {"the GPU requests a reboot of the system", "drain the node, and reboot it", EffectFatal},
}
