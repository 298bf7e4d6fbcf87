// The control plane that tests run against: etcd, kube-apiserver, kube-controller-manager and kubectl in one
// file. Which of them it is follows from the name it is called by, so that a folder of links to it looks like
// the folder that envtest calls KUBEBUILDER_ASSETS.
//
// build.sh builds it and makes the links. Nothing in here is part of the gateway.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllers.NewControllerManagerCommand())
	case "kubectl":
		run(kubectl.NewDefaultKubectlCommand())
	default:
		fmt.Fprintf(os.Stderr, "%s: call it etcd, kube-apiserver, kube-controller-manager or kubectl\n", name)
		os.Exit(2)
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}
