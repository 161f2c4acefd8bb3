package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"proctor/images"
)

func main() {
	force := flag.Bool("force", false, "")
	out := flag.String("out", "/var/tmp/proctor-dev/images", "")
	cache := flag.String("cache", "", "")
	dir := flag.String("recipes", "", "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, n := range flag.Args() {
		r, err := images.Recipes{Dir: *dir}.Load(n)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		log, _ := os.Create("/var/tmp/pimg/" + n + ".log")
		res, err := images.Build(ctx, images.BuildOptions{Recipe: r, OutDir: *out, CacheDir: *cache, Force: *force, Log: log, Progress: images.PlainProgress(os.Stdout, n+": ")})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(res.Path, res.Built, res.Elapsed, res.Image.Digest, res.Image.ArchiveBytes, res.Image.RootBytes, res.Image.RootFiles)
	}
}
