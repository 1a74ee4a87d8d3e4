#!/bin/bash
# What sites commonly run as their epilog's GPU check (without the sleep many put in front of it): memory of each
# card, then the processes on them and who they are.
nvidia-smi --query-gpu=index,uuid,memory.used --format=csv,noheader,nounits
for pid in $(nvidia-smi --query-compute-apps=pid --format=csv,noheader,nounits); do
	ps -o pid,user,lstart,args -p "$pid"
done
