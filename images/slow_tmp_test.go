package images_test
import ("testing";"strings";"time";"proctor/images";"fmt")
func TestSlow(t *testing.T){
 laugh:="name: &a [x,x,x,x,x,x,x,x,x,x]\n"; for i:='b'; i<'k'; i++ { laugh+=fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n",i,i,i-1,i-1,i-1,i-1,i-1,i-1,i-1,i-1,i-1) }
 for n,s:=range map[string]string{"laugh":laugh,"deep1k":"name: "+strings.Repeat("[",1000),"deep10k":"name: "+strings.Repeat("[",10000),"deepmap":"name: "+strings.Repeat("{a: ",3000),"self":"env: &a {b: *a}\n", "self2":"packages: &a [*a]\n", "merge":"env: &a {<<: *a}\n","deep20k":"name: "+strings.Repeat("- ",20000), "long": "name: \""+strings.Repeat("x",1<<20)+"\n"} {
  st:=time.Now(); _,err:=images.ParseRecipe("tool.yaml",[]byte(s)); e:=err.Error(); if len(e)>100{e=e[:100]}; fmt.Println(n,time.Since(st),e)
 }
}
